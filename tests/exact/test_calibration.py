"""Intervals of estimates by whole episodes, computed by hand from cells of a store."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from zol.bench.calibration import calibration, calibration_table, judged
from zol.bench.store import Key, Result
from zol.value import accuracy


def cell(world: str, model: str, task: str, *, off: float, believed: float = 1.0) -> Result:
    """An estimate of 0.5 per step of 20 for a task that earns ``off`` more than that."""
    return Result(
        Key("zoo", world, task, "episodes", "{}", model, 0, 0),
        returns=np.array([20 * (0.5 + off) - 1, 20 * (0.5 + off) + 1]),
        estimate=0.5,
        diagnostics={"believed": believed, "horizon": 20.0},
    )


ROWS = [
    cell("walker", "a", "x", off=0.1),
    cell("walker", "a", "y", off=-0.1),
    cell("walker", "b", "x", off=0.3),
    cell("maze", "c", "x", off=0.05),
    cell("maze", "c", "y", off=-0.2),
    cell("maze", "c", "z", off=0.9, believed=0.0),  # the learned world knows nothing of it
]


def test_errors_are_true_minus_estimated_where_the_world_is_believed() -> None:
    assert [off for _, off in judged(ROWS)] == pytest.approx([0.1, -0.1, 0.3, 0.05, -0.2])


def test_bounds_and_what_those_of_other_worlds_hold() -> None:
    found = calibration(ROWS)["episodes"]
    assert (found["low"], found["high"]) == (-0.3, 0.3)
    assert found["mean_abs_error"] == {"walker": pytest.approx((0.1 + 0.3) / 2), "maze": pytest.approx(0.125)}
    # the maze's bounds, ±0.2, hold both of a's errors and not b's; walker's, ±0.3, hold the maze's
    assert found["held_out"] == {"walker": 0.5, "maze": 1.0}
    # walker's models, each within the bounds of the other one: a within ±0.3, b not within ±0.1
    assert found["worlds"] == {"walker": {"low": -0.3, "high": 0.3, "held": 0.5}}
    header, lines = calibration_table(ROWS)
    assert header[0] == "world"
    assert [line[:3] for line in lines] == [["walker", "3", "0.200"], ["maze", "2", "0.125"]]


def test_a_store_without_such_estimates_has_no_table() -> None:
    assert calibration([]) == {}


def test_what_was_measured_is_quoted_and_bounds_that_do_not_hold_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "episodes.json"
    file.write_text(json.dumps(calibration(ROWS)))
    monkeypatch.setattr(accuracy, "EPISODES", file)
    assert accuracy.of_practised("episodes")
    assert not accuracy.of_practised("ratio")
    assert "off by 0.20 per step" in accuracy.told("episodes", "walker")
    assert "was not measured" in accuracy.told("episodes", "donut")
    ends = torch.tensor([0.5]), torch.tensor([0.0]), torch.tensor([1.0])
    assert accuracy.likely("episodes", *ends) is None  # held half of the walker's
    well = {"episodes": calibration(ROWS)["episodes"] | {"held_out": {"walker": 0.9, "maze": 0.8}}}
    other = tmp_path / "well.json"
    other.write_text(json.dumps(well))
    monkeypatch.setattr(accuracy, "EPISODES", other)
    found = accuracy.likely("episodes", *ends)
    assert found is not None
    assert found.flatten().tolist() == pytest.approx([0.2, 0.8])
    # a world's own bounds go before those of all worlds, and are not shown either where they did not hold
    assert accuracy.likely("episodes", *ends, "walker") is None
    assert "made from other models of walker held 50%" in str(accuracy.bounds("episodes", "walker"))
    own = {"walker": {"low": -0.1, "high": 0.1, "held": 0.9}}
    third = tmp_path / "own.json"
    third.write_text(json.dumps({"episodes": well["episodes"] | {"worlds": own}}))
    monkeypatch.setattr(accuracy, "EPISODES", third)
    found = accuracy.likely("episodes", *ends, "walker")
    assert found is not None
    assert found.flatten().tolist() == pytest.approx([0.4, 0.6])
