"""Minutes of training until a score: computed by hand from lines of metrics."""

import json
from pathlib import Path

import pytest

from zol.cli import main
from zol.common.errors import DataError
from zol.train.time_to_score import curve

LINES = [
    {"step": 0, "return/walk": 10.0, "return/run": 0.0, "return/mean": 5.0},
    {"step": 600, "steps_per_second": 10.0, "loss": 1.0},
    {"step": 1200, "steps_per_second": 5.0, "return/walk": 300.0, "return/run": 100.0, "return/mean": 200.0},
    {"step": 1800, "steps_per_second": 5.0, "return/walk": 100.0, "return/run": 100.0, "return/mean": 100.0},
    {"step": 2400, "steps_per_second": 10.0, "return/walk": 500.0, "return/run": 300.0, "return/mean": 400.0},
]


def test_minutes_are_steps_over_the_speed_of_every_line() -> None:
    found = curve(LINES)
    assert found.steps == (0, 1200, 1800, 2400)
    assert found.minutes == pytest.approx((0, 1 + 2, 5, 6))
    assert found.scores == pytest.approx((5, 200, 100, 400))


def test_a_level_is_reached_when_it_is_kept() -> None:
    found = curve(LINES)
    assert (found.passed(150), found.reached(150)) == pytest.approx((3, 6))
    assert (found.passed(300), found.reached(300)) == pytest.approx((6, 6))
    assert (found.passed(500), found.reached(500)) == (None, None)
    fallen = curve(LINES[:-1])
    assert fallen.passed(150) == pytest.approx(3)
    assert fallen.reached(150) is None


def test_tasks_choose_what_is_averaged() -> None:
    assert curve(LINES, ["walk"]).scores == pytest.approx((10, 300, 100, 500))
    with pytest.raises(DataError, match="fly"):
        curve(LINES, ["fly"])
    with pytest.raises(DataError, match="--episodes 0"):
        curve([{"step": 600, "steps_per_second": 10.0}])


def test_the_command_prints_runs_side_by_side_and_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lines in {"short": LINES[:-1], "long": LINES}.items():
        (tmp_path / name).mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name / "metrics.jsonl").write_text(text, encoding="utf-8")
    picture = tmp_path / "curves.png"
    words = ["train", "compare", str(tmp_path / "short"), str(tmp_path / "long"), "--levels", "150", "300"]
    main([*words, "--out", str(picture)])
    said = capsys.readouterr().out
    assert "– (3.0)" in said  # the short run fell below 150 again
    assert "6.0 (3.0)" in said
    assert picture.stat().st_size > 1000
    with pytest.raises(SystemExit):
        main(["train", "compare", str(tmp_path / "nothing")])
    assert "has no metrics yet" in capsys.readouterr().err
