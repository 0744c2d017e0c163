"""Whole imagined episodes in a learned world that is the true one: what is said, taken and kept."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from true_donut import TrueDonut, true_world

from zol.adapt import Problem, solve
from zol.adapt.episodes import EpisodesConfig
from zol.collect.donut import collect
from zol.evidence import Evidence
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.rollout import evaluate
from zol.tasks import Task
from zol.worlds.donut import Donut

QUICK = EpisodesConfig(trained=96, goals=2, starts=8, finalists=3, final_starts=24)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def asked(world: Donut, tasks: dict[str, Task], dynamics: nn.Module) -> Problem:
    """An untrained model, whose policies differ and whose prompts mean nothing."""
    data = collect(1500, seeded())
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=32), seeded(1)).eval()
    evidence = Evidence.gather(data, tasks, world.layout, samples=400, starts=10, generator=seeded(2))

    def trained(count: int, generator: torch.Generator) -> Tensor:
        return model.project(torch.randn(count, 8, generator=generator))

    return Problem(
        model,
        evidence,
        "donut",
        tasks,
        world.layout,
        dynamics=true_world(dynamics),
        episode_length=world.episode_length,
        trained=trained,
    )


@pytest.fixture(scope="module")
def problem() -> Problem:
    world = Donut()
    return asked(world, {name: world.tasks[name] for name in ("cross", "outer_ring")}, TrueDonut())


def earned(problem: Problem, z: Tensor) -> Tensor:
    """Mean reward per step of the latents ``[T, d]`` of the tasks, in the world itself, ``[T, E]``."""
    own, world = identity(problem.model), Donut()
    latents = [Latent(row, own, name, "") for row, name in zip(z, problem.evidence.tasks, strict=True)]
    played = evaluate(world, problem.model, latents, episodes=400, generator=seeded(5))
    return played.returns / world.episode_length


def judged_by(problem: Problem, z: Tensor) -> Tensor:
    """The same from the very start states that judge finalists, step by step, ``[T]``."""
    world, model, learned = Donut(), problem.model, problem.learned_world()
    order = torch.randperm(len(learned.starts), generator=problem.generator("episodes"))
    starts, found = learned.starts[order[QUICK.starts :][: QUICK.final_starts]], []
    for row, task in zip(z, problem.ordered_tasks, strict=True):
        states, total = world.set_physics(starts), 0.0
        for _ in range(world.episode_length):
            states = world.step(model.act(states.obs.float(), row))
            total += float(task(states).double().mean())
        found.append(total / world.episode_length)
    return torch.tensor(found, dtype=torch.float64)


def test_it_takes_what_truly_earns_more_and_says_how_much(problem: Problem) -> None:
    found = solve("episodes", problem, QUICK).found
    plain, chosen = earned(problem, problem.start), earned(problem, found.z[0])
    changed = found.diagnostics["changed"][0] > 0
    assert bool(changed.any())
    gain, error = (chosen - plain).mean(-1), (chosen - plain).std(-1) / 20
    assert bool((gain[changed] > 3 * error[changed]).all())
    told, before = judged_by(problem, found.z[0]), judged_by(problem, problem.start)
    torch.testing.assert_close(found.estimate[0].double(), told, atol=1e-4, rtol=0)
    promised = found.diagnostics["imagined_gain"][0]
    torch.testing.assert_close(promised[changed], (told - before)[changed], atol=1e-4, rtol=0)


def test_it_keeps_the_plain_prompt_to_the_last_bit_unless_the_gain_is_worth_it(problem: Problem) -> None:
    found = solve("episodes", problem, QUICK.updated(min_gain=1.0)).found
    assert torch.equal(found.z, solve("plain", problem).found.z)
    assert not bool(found.diagnostics["changed"].any())
    assert not bool(found.diagnostics["imagined_gain"].any())
    told = judged_by(problem, problem.start)
    torch.testing.assert_close(found.estimate[0].double(), told, atol=1e-4, rtol=0)


class Stuck(TrueDonut):
    """Dynamics in which nothing ever moves."""

    def forward(self, states: Tensor, actions: Tensor, noise: Tensor | None = None) -> Tensor:
        return states


def test_a_world_that_does_not_predict_the_reward_decides_nothing() -> None:
    world = Donut()
    distrusted = asked(world, {"cross": world.tasks["cross"]}, Stuck())
    found = solve("episodes", distrusted, QUICK.updated(min_correlation=0.9)).found
    assert float(found.diagnostics["correlation"]) < 0.9
    assert not bool(found.diagnostics["believed"])
    assert torch.equal(found.z, solve("plain", distrusted).found.z)


def test_a_world_that_misses_single_steps_decides_nothing() -> None:
    world, rough = Donut(), TrueDonut()
    rough.error = torch.tensor([0.5, 0.6])  # a quarter of the variance, and more
    distrusted = asked(world, {"cross": world.tasks["cross"]}, rough)
    found = solve("episodes", distrusted, QUICK).found
    assert float(found.diagnostics["one_step_error"]) == pytest.approx(0.25)
    assert not bool(found.diagnostics["believed"])
    assert torch.equal(found.z, solve("plain", distrusted).found.z)


def test_whole_episodes_are_played(problem: Problem) -> None:
    found = solve("episodes", problem, QUICK).found
    assert found.diagnostics["horizon"].unique().tolist() == [Donut.episode_length]
    short = solve("episodes", problem, QUICK.updated(horizon=3)).found
    assert short.diagnostics["horizon"].unique().tolist() == [3]
    assert not torch.equal(short.estimate, found.estimate)
    nobody = replace(problem, episode_length=None)
    assert solve("episodes", nobody, QUICK.updated(horizon=3)).found.z.equal(short.z)


def test_without_latents_of_training_prompts_and_goals_are_left(problem: Problem) -> None:
    found = solve("episodes", replace(problem, trained=None), QUICK).found
    assert found.z.shape == (1, 2, 8)
    more = solve("episodes", problem, QUICK).found
    assert bool((more.estimate > found.estimate).any())  # some task is served by one of them
