"""Statistics: intervals that cover, pairing that helps, tables that say what they are."""

from pathlib import Path

import numpy as np
import pytest

from zol import report
from zol.errors import DataError
from zol.report import Scores


def scores(runs: int = 3, episodes: int = 20, gain: float = 0.05) -> Scores:
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 1, (runs, 4, episodes))
    return Scores(("a", "b", "c", "d"), {"fb": base, "zol": base + gain + rng.normal(0, 0.01, base.shape)})


def test_paired_interval_is_far_tighter_than_the_unpaired_one() -> None:
    s = scores()
    paired = report.paired(s, "zol", "fb")
    alone = report.bootstrap(s.values["zol"])
    assert paired.low > 0.04
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)


def test_interval_covers_the_truth_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        interval = report.bootstrap(rng.normal(0.0, 1.0, (1, 2, 40)), resamples=300)
        hits += interval.low <= 0.0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_runs_widen_the_interval() -> None:
    """Two seeds that disagree make the mean uncertain, however many episodes each has."""
    agreed = np.zeros((2, 3, 500))
    split = agreed.copy()
    split[1] += 1.0
    assert report.bootstrap(agreed).high == 0.0
    wide = report.bootstrap(split)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_round_trip(tmp_path: Path) -> None:
    s = scores()
    s.save(tmp_path / "scores")
    again = Scores.load(tmp_path / "scores")
    assert again.tasks == s.tasks
    np.testing.assert_array_equal(again.values["zol"], s.values["zol"])


def test_tables_have_every_method_and_the_caveat() -> None:
    s = scores(runs=1)
    header, rows = report.summary(s, "fb", {"extra": ["x", "y"]})
    assert [row[0] for row in rows] == ["fb", "zol"]
    assert header[-1] == "extra"
    assert rows[0][2] == ""  # no difference to itself
    assert "start states only" in report.caveat(s)
    assert "resample seeds" in report.caveat(scores())
    assert report.markdown(report.per_task(s)).count("\n") == 6


def test_unpaired_shapes_are_refused() -> None:
    with pytest.raises(DataError, match="one shape"):
        Scores(("a",), {"fb": np.zeros((1, 1, 3)), "zol": np.zeros((1, 1, 4))})
    with pytest.raises(DataError, match="do not fit"):
        Scores(("a", "b"), {"fb": np.zeros((1, 1, 3))})
