"""A learned world of the donut ranks latents by what they truly earn, and rehearsal improves a weak model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from rich.progress import Progress
from torch import Tensor

from zol.adapt import RehearsalConfig, prompted, rehearsed
from zol.collect.donut import collect
from zol.common.progress import Ticker
from zol.evidence import Evidence
from zol.imagination.dynamics import Dynamics
from zol.imagination.learned_world import LearnedWorld, record_one_step_error
from zol.models.base import Latent, model_hash
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.network import Network
from zol.rollout import evaluate
from zol.train import TrainConfig, fit
from zol.train.learned_world import WorldConfig, learn_world
from zol.value import ValueProblem
from zol.value.imagination import by_imagination
from zol.worlds.donut import Donut


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass
class Setting:
    """A weakly trained model, its learned world and the evidence of all tasks."""

    world: Donut
    model: Network
    learned: LearnedWorld
    evidence: Evidence

    def earned(self, z: Tensor) -> Tensor:
        """True mean reward per step of latents ``[K, T, d]``, ``[K, T]``."""
        identity, names = model_hash(self.model), self.evidence.tasks
        latents = [
            Latent(row, identity, name, "") for rows in z for row, name in zip(rows, names, strict=True)
        ]
        played = evaluate(self.world, self.model, latents, episodes=64, generator=seeded(5))
        return (played.returns.mean(1) / self.world.episode_length).reshape(z.shape[:2])


@pytest.fixture(scope="module")
def setting() -> Setting:
    world = Donut()
    dataset = collect(40_000, seeded(0))
    settings = FBConfig(
        obs_dim=2, action_dim=2, z_dim=16, hidden=64, discount=world.discount, learning_rate=1e-3
    )
    model = fb_network(settings)
    fit(FBLearner(model, settings), dataset, TrainConfig(steps=600, batch_size=128))
    config = WorldConfig(steps=1500, batch_size=128, width=64)
    learned = learn_world(dataset, world.layout, config)
    evidence = Evidence.gather(dataset, world.tasks, world.layout, samples=4000, generator=seeded(2))
    return Setting(world, model.eval(), learned, evidence)


def test_it_predicts_held_out_experience(setting: Setting) -> None:
    assert setting.learned.one_step_error() < 0.05
    assert (
        setting.learned.reward_correlation(list(setting.world.tasks.values()), setting.world.layout) > 0.85
    ).all()


def test_imagined_returns_rank_latents(setting: Setting) -> None:
    tasks, model = list(setting.world.tasks.values()), setting.model
    z = model.project(torch.randn(24, model.z_dim, generator=seeded(3)))
    problem = ValueProblem(model, setting.evidence, tasks, setting.world.layout, setting.learned)
    imagined = by_imagination(problem, z, horizon=100, starts=32).mean
    earned = setting.earned(z.unsqueeze(1).expand(-1, len(tasks), -1))
    pairs = torch.stack([imagined.T.flatten(), earned.T.flatten()])
    assert torch.corrcoef(pairs)[0, 1] > 0.6


def test_rehearsal_improves_a_weak_model(setting: Setting) -> None:
    tasks = list(setting.world.tasks.values())
    config = RehearsalConfig(horizon=100, rounds=2)
    found = rehearsed(
        setting.model,
        setting.learned,
        setting.evidence,
        tasks,
        setting.world.layout,
        config,
        generator=seeded(4),
    )
    earned = setting.earned(torch.stack([found.start, found.z[0]]))
    # Not on every task: rewards that no held-out stretch meets cannot be checked offline.
    assert (earned[1] > earned[0] - 0.03).sum() >= 3
    assert earned[1].mean() > earned[0].mean() + 0.03


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_gain_must_be_worth_something_whatever_the_unit_of_rewards(setting: Setting, unit: float) -> None:
    tasks = [unit * task for task in setting.world.tasks.values()]
    evidence = replace(
        setting.evidence, tasks=tuple(t.name for t in tasks), rewards=unit * setting.evidence.rewards
    )
    ranges = evidence.rewards.amax(-1) - evidence.rewards.amin(-1)

    def diagnostics(min_gain: float) -> Mapping[str, Tensor]:
        config = RehearsalConfig(horizon=50, rounds=0, min_gain=min_gain)
        return rehearsed(
            setting.model, setting.learned, evidence, tasks, setting.world.layout, config, generator=seeded(4)
        ).diagnostics

    gains = diagnostics(0.0)["imagined_gain"][0] / ranges
    *_, middle = gains[gains > 0].sort().values[:2]  # the second smallest gain: strictly more is asked for
    kept = diagnostics(float(middle))
    assert (gains > middle).any()
    assert torch.equal(kept["changed"][0], (gains > middle).float())


def test_a_world_that_predicts_nothing_is_not_trusted(setting: Setting) -> None:
    config = setting.learned.dynamics.config
    ignorant = Dynamics(config, seeded(9))
    ignorant.measure(setting.learned.states[:, 0], setting.learned.states[:, 1])
    record_one_step_error(ignorant, setting.learned.states, setting.learned.actions)
    world = LearnedWorld(ignorant, setting.learned.starts, setting.learned.states, setting.learned.actions)
    tasks = list(setting.world.tasks.values())

    def extra_candidates() -> Tensor:
        raise AssertionError("no task may take them, so they should not be computed")

    found = rehearsed(
        setting.model,
        world,
        setting.evidence,
        tasks,
        setting.world.layout,
        RehearsalConfig(horizon=20, min_correlation=-1.0),
        generator=seeded(4),
        extra_candidates=extra_candidates,
    )
    assert world.median_one_step_error() > 0.2
    assert not found.diagnostics["changed"].any()
    # To the last bit: rounding would send chaotic episodes another way and look like a difference.
    assert torch.equal(found.z, prompted(setting.model, setting.evidence).z)


def test_tasks_that_are_half_trusted_choose_among_prompts(setting: Setting) -> None:
    tasks, evidence = list(setting.world.tasks.values()), setting.evidence
    config = RehearsalConfig(
        horizon=50, min_correlation=1.0, min_correlation_prompts=-1.0, margin=0.0, finalists=40
    )
    found = rehearsed(
        setting.model, setting.learned, evidence, tasks, setting.world.layout, config, generator=seeded(4)
    )
    prompts = [
        evidence.prompt(setting.model, how, centre=centre)
        for how in ("correlation", "ridge", "weighted")
        for centre in (False, True)
    ]
    choices = torch.cat([found.start, *prompts])
    assert found.diagnostics["changed"].any()
    assert all((row == choices).all(-1).any() for row in found.z[0])
    earned = setting.earned(torch.stack([found.start, found.z[0]]))
    assert earned[1].mean() > earned[0].mean()


def test_it_travels_as_one_file(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("world") / "dynamics.safetensors"
    setting.learned.save(path)
    again = LearnedWorld.load(path)
    assert torch.equal(again.replay(), setting.learned.replay())
    assert torch.equal(again.dynamics.error, setting.learned.dynamics.error)


@pytest.mark.parametrize("searching", [True, False], ids=["the whole search", "nothing to trust"])
def test_progress_counts_every_imagined_step(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, searching: bool
) -> None:
    """So that the time left is true: what was announced is what was played."""
    least = -1.0 if searching else 1.0
    config = RehearsalConfig(
        horizon=5, starts=2, goals=2, random_latents=3, rounds=2, population=2, min_correlation=least,
        min_correlation_prompts=least, max_one_step_error=9.0,
    )  # fmt: skip
    monkeypatch.setattr(Ticker, "finish", lambda *_: None)
    progress = Progress(disable=True)
    rehearsed(
        setting.model,
        setting.learned,
        setting.evidence,
        list(setting.world.tasks.values()),
        setting.world.layout,
        config,
        generator=seeded(0),
        extra_candidates=lambda: setting.model.project(torch.ones(3, setting.model.z_dim)),
        progress=progress,
    )
    (task,) = progress.tasks
    assert task.completed == task.total
    assert task.total > 5 * len(setting.world.tasks)
