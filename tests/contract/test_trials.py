"""Trials at equal CPU time: what is counted, exact resume after kills, finished work, refusals, tables."""

import csv
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import run

from zol.bench.cpu_budget import Metered, Speed
from zol.bench.health_ranks import health_ranks
from zol.bench.recipes import RECIPES, Recipe, prepared
from zol.bench.trials import POINTS, Outcome, Point, Trial, run_trials
from zol.bench.trials_report import scores
from zol.collect.donut import collect
from zol.common.errors import ZolError
from zol.data import Dataset
from zol.models.fb import FBLearner
from zol.train.planning import entry_of
from zol.train.run_folder import read_metrics
from zol.worlds.donut import Donut

SMALL: dict[str, Any] = {"batch_size": 32, "hidden": 16, "backward_hidden": 16, "z_dim": 6}
TASKS = tuple(Donut().tasks)


def dataset() -> Dataset:
    return collect(600, torch.Generator().manual_seed(0))


def trial(name: str = "small", *, seed: int = 0, steps: int | None = 20, **change: Any) -> Trial:
    recipe = Recipe("fb", SMALL | change)
    setup = partial(prepared, recipe, dataset(), Donut(), seed, 2)
    seconds = None if steps is not None else 0.2
    return Trial(name, seed, "offline", dict(recipe.settings), setup, seconds, steps)


def test_the_meter_counts_training_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that the test moves: the loop scales rates, draws, updates, and then does other things."""
    now = 100.0
    monkeypatch.setattr("time.process_time", lambda: now)
    with trial().setup(None) as setup:
        learner, generator = setup.learner, torch.Generator()
        assert learner.spent == 0
        for _ in range(3):
            learner.scale_learning_rates(1.0)
            now += 2.0  # drawing
            learner.update(setup.dataset.sample(32, generator), generator)
            now += 5.0  # a test
        assert learner.spent == 6.0
        again = Metered(learner.learner)
        again.load_state_dict(learner.state_dict())
        assert again.spent == 6.0


def test_steps_fill_the_time_that_is_left() -> None:
    speed = Speed(before=4.0, rate=10.0)
    assert speed.steps(64.0, POINTS) == 600
    assert speed.steps(64.3, POINTS) == 605
    assert speed.steps(1.0, POINTS) == POINTS, "a budget that is too small still has its tests"


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = {"minutes": 1, "tasks": ("a", "b")}
    (first,) = run_trials([trial(steps=None)], conditions, tmp_path / "out", tmp_path / "runs")
    assert [test.step for test in first.tests] == [k * first.steps // POINTS for k in range(POINTS + 1)]
    assert first.tests[0].cpu_seconds == 0 < first.tests[1].cpu_seconds < first.cpu_seconds
    assert 0.05 < first.cpu_seconds < 1.0, "asked for 0.2 s"
    assert {len(values) for test in first.tests for values in test.returns.values()} == {2}
    assert first.tests[-1].health.keys() >= {"bellman_residual", "Q_gain"}
    assert first.sessions[0]["commit"]

    def fail(*_: object) -> None:
        raise AssertionError("it was trained again")

    monkeypatch.setattr(FBLearner, "update", fail)
    again = run_trials([trial(steps=None)], conditions, tmp_path / "out", tmp_path / "runs")
    assert again == [first]
    with pytest.raises(ZolError, match="made with minutes=1, now 2 is asked for: choose another --out"):
        run_trials([trial()], {"minutes": 2}, tmp_path / "out", tmp_path / "runs")
    with pytest.raises(ZolError, match="made with hidden=16, now 8 is asked for"):
        run_trials([trial(hidden=8)], conditions, tmp_path / "out", tmp_path / "runs")
    (tmp_path / "out" / "small-0.json").unlink()  # as if the process had been killed before it was written
    (rebuilt,) = run_trials([trial(steps=None)], conditions, tmp_path / "out", tmp_path / "runs")
    assert rebuilt.tests == first.tests


def kill_me(say: Any, folder: Path) -> None:
    original = FBLearner.update

    def talking(self: FBLearner, *args: Any) -> Any:
        say("update")
        return original(self, *args)

    FBLearner.update = talking  # type: ignore[method-assign, assignment]
    run_trials([trial(steps=50)], {}, folder / "out", folder / "runs")


def test_kills_leave_no_trace(tmp_path: Path) -> None:
    run(kill_me, tmp_path / "calm")
    choose = random.Random(0)
    for _ in range(3):
        run(kill_me, tmp_path / "killed", kill_after=choose.uniform(0, 0.02), words=choose.randint(3, 15))
    run(kill_me, tmp_path / "killed")
    found, expected = (
        json.loads((tmp_path / k / "out/small-0.json").read_text()) for k in ("killed", "calm")
    )
    assert len(found["sessions"]) > 1
    for outcome in (found, expected):
        for test in outcome["tests"]:
            del test["cpu_seconds"]
    assert found["tests"] == expected["tests"]


def test_a_recipe_that_diverges_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = FBLearner.update

    def broken(self: FBLearner, *args: Any) -> Any:
        found = original(self, *args)
        return {name: value * torch.inf for name, value in found.items()} if self.config.bc else found

    monkeypatch.setattr(FBLearner, "update", broken)
    trials = [trial("bad", bc=1.0), trial("good")]
    outcomes = run_trials(trials, {}, tmp_path / "out", tmp_path / "runs")
    assert outcomes[0].failed.startswith("training diverged at step 4")
    assert len(outcomes[0].tests) == 1
    header, rows = scores(outcomes, TASKS)
    assert [row[0] for row in rows] == ["good", "bad", "random actions"], "what diverged comes last"
    assert rows[1][header.index("seed 0")] == "diverged"
    assert rows[1][header.index("mean")] == "–"


def outcome(name: str, seed: int, curve: dict[float, float]) -> Outcome:
    """Health numbers and returns of a made-up training: ``good`` rises with returns, ``bad`` falls."""
    tests = [
        Point(
            step=k,
            cpu_seconds=60.0 * k,
            returns={"run": [y, y + 2], "walk": [3 * y, 3 * y]},
            health={"good": x, "bad": -x, "none": float(k % 2)},
        )
        for k, (x, y) in enumerate(curve.items())
    ]
    return Outcome(
        name=name,
        seed=seed,
        kind="offline",
        settings={},
        conditions={},
        steps=len(tests),
        batch_size=1,
        updates_per_cpu_second=None,
        cpu_seconds=60.0,
        random={"run": 1.0},
        tests=tests,
        failed="",
        sessions=[],
        finished="",
    )


def test_tables_hold_means_over_tasks_and_seeds() -> None:
    made = [outcome("a", 0, {0: 10.0}), outcome("a", 1, {0: 30.0}), outcome("b", 0, {0: 50.0})]
    header, rows = scores(made, ["run"])
    assert header[4:] == ["mean", "seed 0", "seed 1", "run", "(walk)"]
    assert [row[0] for row in rows] == ["b", "a", "random actions"]
    assert rows[1][4:] == ["21", "11", "31", "21", "60"]
    assert rows[0][4:] == ["51", "51", "–", "51", "150"]
    assert rows[2][4:] == ["1", "", "", "1", "–"]
    _, rows = scores(made, ["run", "walk"])
    assert rows[1][4:7] == ["40", "20", "60"], "(11 + 30) / 2 and (31 + 90) / 2"


def test_health_numbers_are_ranked_by_what_they_say() -> None:
    """Within a recipe ``good`` rises with returns; between finished models it falls."""
    made = [
        outcome("a", 0, {1.0: 1.0, 2.0: 2.0, 3.0: 4.0, 8.0: 5.0}),
        outcome("b", 0, {1.0: 2.0, 2.0: 3.0, 3.0: 5.0, 7.0: 6.0}),
        outcome("c", 0, {1.0: 3.0, 2.0: 4.0, 3.0: 6.0, 6.0: 7.0}),
        outcome("d", 0, {1.0: 4.0, 2.0: 5.0, 3.0: 7.0, 5.0: 8.0}),
    ]
    header, rows = health_ranks(made, ["run"])
    found = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}
    assert found["good"]["within"] == "1.00"
    assert found["good"]["at the end"] == "-1.00"
    assert found["bad"]["at the end"] == "1.00"
    assert found["tests"] == {"everywhere": "16", "within": "16", "at the end": "4"}
    assert 0 < float(found["good"]["everywhere"]) < 1


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_settings_that_exist(name: str) -> None:
    recipe = RECIPES[name]
    known = set(entry_of(recipe.model).config.model_fields) | {"batch_size", "anneal"}
    assert set(recipe.settings) <= known


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zol_command: Any) -> None:
    """One recipe on data and one that practises, as a user types it; the second time nothing is trained."""
    acting = {"envs": 4, "episode_length": 20, "latent_steps": 10, "random_steps": 100, "feature_steps": 2}
    monkeypatch.setitem(RECIPES, "preset", Recipe("fb", SMALL))
    monkeypatch.setitem(RECIPES, "prior_features", Recipe("prior_features", SMALL | acting))
    assert zol_command(*f"explore donut --steps 600 --how random --out {tmp_path / 'data'}".split())[0] == 0
    words = (
        f"bench recipes --data {tmp_path / 'data'} --recipes preset prior_features --seeds 0 --minutes 0.003"
    )
    words += f" --episodes 2 --out {tmp_path / 'out'} --runs {tmp_path / 'runs'}"
    code, said, _ = zol_command(*words.split())
    assert code == 0
    assert "trial 1 of 2: preset, seed 0, about" in said
    page = (tmp_path / "out" / "recipes.md").read_text()
    assert "| prior_features | practice |" in page
    assert "| Q_gain |" in page
    with (tmp_path / "out" / "recipes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 2 * (POINTS + 1)
    assert all(len(row["returns"].split()) == 2 and row["commit"] for row in rows)
    assert (tmp_path / "out" / "recipes.png").stat().st_size > 1000
    lines = read_metrics(tmp_path / "runs" / "prior_features-0")
    assert lines[0]["cpu_seconds"] > 0, "first steps in the world count"
    code, said, _ = zol_command(*words.split())
    assert code == 0
    assert "trial 1" not in said
    code, _, errors = zol_command(*words.replace("preset prior_features", "presett").split())
    assert code != 0
    assert "did you mean 'preset'" in errors
