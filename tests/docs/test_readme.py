"""The README's tables are what the zoo and the stored results say."""

import csv
from pathlib import Path
from statistics import fmean

from zol import checkpoint
from zol.checkpoint import zoo
from zol.common.markdown import markdown_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
METHODS = {
    "plain": "the model's own prompt",
    "zol": "the paper's search, one setting for all tasks",
    "perturb": "control: random moves as long as zol's",
    "episodes": "ours, the default: whole imagined episodes",
    "lola": "LoLA, 20,000 steps of the environment per task",
}


def zoo_table() -> str:
    rows = []
    for name in zoo.names():
        earned = zoo.returns(checkpoint.load(zoo.find(name)).facts)
        best = max(earned, key=lambda task: earned[task][0])
        mean, random = (fmean(values) for values in zip(*earned.values(), strict=True))
        rows.append(
            (f"`{name}`", str(len(earned)), f"{mean:.0f}", f"{random:.0f}", f"{best} {earned[best][0]:.0f}")
        )
    return markdown_table(("model", "tasks", "mean return", "random actions", "best task"), rows)


def results(name: str) -> dict[str, dict[str, str]]:
    with (ROOT / "results" / f"{name}-overall.csv").open() as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def methods_table() -> str:
    found = [results(f"zoo/{name}-episodes20") for name in ("zoo", "zoo_unseen")]
    rows = []
    for name, text in METHODS.items():
        column = "mean [95 %]" if name == "plain" else "Δ % [95 %]"
        rows.append((f"`{name}`", text, *(rows_of[name][column].replace("-", "−") for rows_of in found)))
    return markdown_table(("method", "what it is", "the paper's 16 tasks", "nine others"), rows)


def test_its_table_of_models_is_the_zoos() -> None:
    assert zoo_table() in README, f"README.md should hold:\n{zoo_table()}"


def test_its_table_of_methods_is_that_of_the_results() -> None:
    assert methods_table() in README, f"README.md should hold:\n{methods_table()}"


def test_its_numbers_of_weak_models_are_those_of_the_results() -> None:
    for method in ("zol", "perturb", "rehearse", "lola"):
        assert results("exorl")[method]["Δ % [95 %]"].replace("-", "−") in README, method


def test_its_moving_picture_is_small_enough_to_load_at_once() -> None:
    assert (ROOT / "docs" / "images" / "behaviours.webp").stat().st_size < 2_000_000


def test_the_librarys_calibration_is_that_of_the_results() -> None:
    found = (ROOT / "results" / "zoo" / "calibration.json").read_text()
    assert found == (ROOT / "src" / "zol" / "value" / "episodes.json").read_text()
