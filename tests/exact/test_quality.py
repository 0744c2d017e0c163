"""Gains against the quality of models, computed by hand from cells of a store."""

from pathlib import Path

import numpy as np
import pytest

from zol.bench.figures import legend_of
from zol.bench.publish import write_report
from zol.bench.quality import gains, quality_table, with_many_models
from zol.bench.results import gather
from zol.bench.store import Key, Result, Store

TASKS = ("run", "run_backward", "walk", "walk_backward")
FACTS = {"command": "zol bench zoo", "commit": "0", "hardware": "none", "versions": {}}


def cell(task: str, method: str, model: str, value: float, domain: str = "cheetah") -> Result:
    key = Key("zoo", domain, task, method, "{}", model, 0, 0)
    return Result(key, np.array([value - 1, value, value + 1]), None, facts=FACTS, finished="2026")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Four checkpoints of one run that earn 10 to 40; zol adds 8, 6, 4 and 2 to them, in all tasks."""
    filled = Store(tmp_path / "store.sqlite")
    rows = []
    for model, quality, gain in (("c", 30, 4), ("a", 10, 8), ("d", 40, 2), ("b", 20, 6)):
        rows += [cell(task, "plain", model, quality) for task in TASKS]
        rows += [cell(task, "zol", model, quality + gain) for task in TASKS]
    filled.add(rows)
    return filled


def test_points_are_paired_differences_from_the_weakest_model_on(store: Store) -> None:
    grid = gather(store, "zoo")
    assert with_many_models(grid) == ("cheetah",)
    points = gains(grid, "cheetah", "zol")
    assert [(point.quality, point.gain.value) for point in points] == [(10, 8), (20, 6), (30, 4), (40, 2)]
    # the same episodes on both sides: their spread cancels
    assert [point.gain.low for point in points] == pytest.approx([8, 6, 4, 2])
    assert [point.gain.high for point in points] == pytest.approx([8, 6, 4, 2])


def test_the_table_compares_the_halves(store: Store) -> None:
    _, rows = quality_table(gather(store, "zoo"), ["cheetah"])
    assert rows == [["cheetah", "zol", "4", "+7.0 (of 15.0)", "+3.0 (of 35.0)"]]


def test_the_report_shows_it_and_says_that_models_of_a_run_are_no_independent_seeds(
    store: Store, tmp_path: Path
) -> None:
    found = write_report(store, tmp_path, ["md", "csv"])
    assert (tmp_path / "zoo-quality.png").stat().st_size > 0
    assert "+7.0 (of 15.0)" in (tmp_path / "zoo-quality.csv").read_text()
    assert "Several models have the same pretraining seed (cheetah)" in found.sections[0].text


def test_few_models_show_no_trend(tmp_path: Path) -> None:
    few = Store(tmp_path / "few.sqlite")
    few.add([cell(task, method, m, 5.0) for task in TASKS for method in ("plain", "zol") for m in "abc"])
    assert with_many_models(gather(few, "zoo")) == ()
    found = write_report(few, tmp_path / "few", ["md"])
    assert not any("quality" in path.name for path in found.files)


def test_a_figures_legend_has_every_method_of_every_panel() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2)
    for axis, methods in zip(axes, (("zol", "lola"), ("switches",)), strict=True):
        for method in methods:
            axis.plot([0], [0], "o", label=method)
    assert list(legend_of(axes, ["switches", "zol", "rela", "lola"])) == ["switches", "zol", "lola"]
    plt.close(figure)
