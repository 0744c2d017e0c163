"""Diagnoses: the latents that each rung of the ladder trains, TD3 of one task, exact resume, the commands."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from zol.bench import ladder
from zol.bench.ladder import RUNGS
from zol.bench.single_task import SingleTask
from zol.bench.trials import Outcome, Trial, run_trials
from zol.collect.donut import collect
from zol.collect.rnd import RNDConfig
from zol.fields import States
from zol.models.prior_features import PriorFeaturesLearner
from zol.rollout import random_returns
from zol.train.loop import TrainConfig, fit
from zol.worlds.donut import Donut

SMALL: dict[str, Any] = {"batch_size": 32, "hidden": 16, "backward_hidden": 16, "z_dim": 6}
SMALL |= {"envs": 4, "episode_length": 20, "latent_steps": 10, "random_steps": 400, "feature_steps": 20}
ORDER = tuple(Donut().tasks)
POOLS = {"td3": 1, "tasks_1": 1, "tasks_2": 2, "tasks_5": 5, "tasks_5_prior_20": 25, "tasks_5_prior": 69}
POOLS["prior"] = 64  # it begins with 64 rewards


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "SETTINGS", SMALL)


def prepared(name: str, folder: Path | None = None) -> Any:
    return ladder._prepared(RUNGS[name], ORDER, Donut(), 0, 2, folder)


def test_every_rung_trains_the_latents_of_its_own_pool() -> None:
    """How many different latents batches hold, and that rungs do learn different things from them."""
    assert POOLS.keys() == RUNGS.keys()
    actors = {}
    for name, expected in POOLS.items():
        with prepared(name) as setup:
            learner, generator = setup.learner, torch.Generator().manual_seed(0)
            for _ in range(3):
                batch = setup.feed.draw(learner.batches, 512, generator)
                learner.update(batch, generator)
            assert len(batch.z.unique(dim=0)) == expected, name
            actors[name] = torch.cat([p.detach().flatten() for p in learner.model.actor.parameters()])
    same = [(a, b) for a in actors for b in actors if a < b and torch.equal(actors[a], actors[b])]
    assert not same


def test_latents_of_tasks_are_least_squares_weights() -> None:
    """By torch's own solver, with a column of ones for the mean reward."""
    with prepared("tasks_5_prior_20") as setup:
        learner = setup.learner.learner
        assert isinstance(learner, PriorFeaturesLearner)
        setup.feed.draw(learner.batches, 8, torch.Generator())
        obs, world = learner.space.obs, Donut()
        with torch.no_grad():
            phi = learner.model.backward_map(learner.model.read(obs, ())).double()
        columns = torch.cat([phi, torch.ones(len(phi), 1)], dim=-1)
        for name, z in zip(ORDER, learner.space.latents, strict=False):
            reward = world.tasks[name](States(obs.double(), world.layout)).double()
            if not reward.any():  # nobody has been there yet, so nothing can be asked for
                assert not z.any()
                continue
            weights = torch.linalg.lstsq(columns, reward.unsqueeze(-1)).solution[:-1, 0]
            assert torch.cosine_similarity(z.double(), weights, dim=0) > 1 - 1e-5, name


def trials() -> list[Trial]:
    names = ("td3", "tasks_5_prior_20")
    return [Trial(name, 0, "oracle", {}, partial(prepared, name), steps=30) for name in names]


def test_an_interrupted_rung_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tests(outcomes: list[Outcome]) -> list[Any]:
        return [(test.step, test.returns, test.health) for one in outcomes for test in one.tests]

    calm = run_trials(trials(), {}, tmp_path / "calm", tmp_path / "calm-runs")
    for learner, stop in ((SingleTask, 17), (PriorFeaturesLearner, 14)):
        original, count = learner.update, [0]

        def stopping(self: Any, *args: Any, _update: Any = original, _n: Any = count, _at: int = stop) -> Any:
            _n[0] += 1
            if _n[0] > _at:
                raise RuntimeError("pulled the plug")
            return _update(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(learner, "update", stopping)
            with pytest.raises(RuntimeError, match="plug"):
                run_trials(trials(), {}, tmp_path / "out", tmp_path / "runs")
    found = run_trials(trials(), {}, tmp_path / "out", tmp_path / "runs")
    assert tests(found) == tests(calm)
    assert [len(one.sessions) for one in found] == [2, 2]


def test_td3_learns_its_task_offline() -> None:
    """On random walks; whoever stands still or drifts outwards does not stay on the cross."""
    world, g = Donut(), torch.Generator().manual_seed(0)
    config = RNDConfig(hidden=64, discount=0.9, learning_rate=1e-3, target_rate=0.05)
    learner = SingleTask(world, world.tasks["cross"], config, 0)
    chance = learner.random(16, 0)["random/cross"]
    starts = torch.Generator().manual_seed(0)
    assert chance == float(random_returns(world, [learner.task], episodes=16, generator=starts).mean())
    assert max(chance, float(learner.returns(16, 0)["cross"].mean())) < 40
    fit(learner, collect(20_000, g), TrainConfig(steps=800, batch_size=128))
    found = learner.returns(16, 0)["cross"]
    assert found.shape == (16,)
    assert found.mean() > 80


def test_commands(tmp_path: Path, zol_command: Any) -> None:
    assert zol_command(*f"explore donut --steps 600 --how random --out {tmp_path / 'data'}".split())[0] == 0
    words = f"bench ceilings --data {tmp_path / 'data'} --tasks cross square --steps 10 --episodes 2"
    words += f" --out {tmp_path / 'ceilings'} --runs {tmp_path / 'runs'}"
    for again in (False, True):
        code, said, _ = zol_command(*words.split())
        assert code == 0
        assert ("trial 1 of 2: cross, seed 0" in said) is not again
    page = (tmp_path / "ceilings" / "ceilings.md").read_text()
    assert "| task | updates | CPU min | mean | seed 0 | best test | data | random |" in page
    assert "no task of donut called 'crosss'" in zol_command(*words.replace("cross", "crosss").split())[2]
    words = "bench ladder --world donut --rungs tasks_1 prior --minutes 0.002 --episodes 2"
    words += f" --out {tmp_path / 'ladder'} --runs {tmp_path / 'rungs'}"
    code, said, _ = zol_command(*words.split())
    assert code == 0
    page = (tmp_path / "ladder" / "ladder.md").read_text()
    assert "| tasks_1 | oracle |" in page
    assert "| prior | practice |" in page
    assert (tmp_path / "ladder" / "ladder.png").exists()
