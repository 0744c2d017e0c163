"""The README's tables are what the zoo and the stored results say."""

import csv
import re
from pathlib import Path
from statistics import fmean

from zol import checkpoint
from zol.checkpoint import zoo
from zol.common.markdown import markdown_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
METHODS = {
    "fb": "plain FB: z = E[B r]",
    "ridge": "least squares r ≈ Bᵀz",
    "zol": "the paper's search, one setting for all tasks",
    "perturb": "control: random moves as long as zol's",
    "rehearse": "ours, the default: latents played in a learned world",
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
    found = results("exorl")
    rows = [
        (f"`{name}`", text, found[name]["mean [95 %]"], found[name]["Δ % [95 %]"].replace("-", "−"))
        for name, text in METHODS.items()
    ]
    return markdown_table(("method", "what it is", "mean return [95 %]", "change [95 %]"), rows)


def test_its_table_of_models_is_the_zoos() -> None:
    assert zoo_table() in README, f"README.md should hold:\n{zoo_table()}"


def test_its_table_of_methods_is_that_of_the_results() -> None:
    assert methods_table() in README, f"README.md should hold:\n{methods_table()}"


def test_its_number_on_unseen_tasks_is_that_of_the_results() -> None:
    assert results("unseen")["rehearse"]["Δ % [95 %]"].replace("-", "−") in README


def test_its_moving_picture_is_small_enough_to_load_at_once() -> None:
    assert (ROOT / "docs" / "images" / "behaviours.webp").stat().st_size < 2_000_000


def test_its_numbers_of_whole_episodes_are_those_of_the_results() -> None:
    text = " ".join(README.split())
    for name in ("zoo", "zoo_unseen"):
        with (ROOT / "results" / "zoo" / f"{name}-episodes20-overall.csv").open() as file:
            rows = {row["method"]: row for row in csv.DictReader(file)}
        column = "Δ % [95 %]" if name == "zoo_unseen" else "Δ plain [95 %]"
        for method in ("episodes", "lola"):
            numbers = rows[method][column].replace("-", "−")
            wanted = re.sub(r"(\d\.\d)\d\d", r"\1", numbers)  # one decimal is enough
            assert wanted in text, f"README.md should say of {method} on {name}: {wanted}"


def test_the_librarys_calibration_is_that_of_the_results() -> None:
    found = (ROOT / "results" / "zoo" / "calibration.json").read_text()
    assert found == (ROOT / "src" / "zol" / "value" / "episodes.json").read_text()
