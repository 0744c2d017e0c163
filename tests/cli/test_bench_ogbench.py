"""OGBench as a user types it: data by recipe, a model of it, and the table of successes."""

from pathlib import Path

import pytest

from zol.bench.store import Store
from zol.cli import main


def test_from_a_recipe_to_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, model, store = (str(tmp_path / name) for name in ("data", "model", "store.sqlite"))
    recipe = ["explore", "pointmaze-medium", "--how", "navigate", "--steps", "10000", "--envs", "10"]
    main([*recipe, "--out", data])
    assert "10,000 transitions in 10 episodes; episodes 10, first_goals 10" in capsys.readouterr().out
    small = [
        "--hidden",
        "16",
        "--backward-hidden",
        "16",
        "--z-dim",
        "4",
        "--batch-size",
        "32",
        "--steps",
        "4",
    ]
    main(["train", "fb", "--data", data, "--out", model, *small, "--episodes", "0", "--dynamics-steps", "0"])
    test = ["--episodes", "2", "--steps", "5", "--workers", "1"]
    main(["bench", "ogbench", model, "--methods", "fb", "goal", "--store", store, *test])
    printed = capsys.readouterr().out
    assert "success rates" in printed
    rows = Store(Path(store)).results()
    assert {row.key.domain for row in rows} == {"pointmaze-medium-navigate"}
    assert {row.key.task for row in rows} == {f"task{number}_shifted" for number in range(1, 6)}
    assert {row.key.method for row in rows} == {"fb", "goal"}
    assert all(set(row.returns.tolist()) <= {0.0, 1.0} for row in rows)
    main(["bench", "ogbench", model, "--methods", "waypoints", "switches", "--store", store, *test])
    assert "0 of 1 jobs are done already" in capsys.readouterr().out  # there are no buttons to press
    assert {row.key.method for row in Store(Path(store)).results()} == {"fb", "goal", "waypoints"}
