"""Tasks that begin in states of their own: methods see those, and results are put together again."""

from dataclasses import replace

import pytest
import torch

import zol
from zol.adapt import solve
from zol.collect.explore import ExploreConfig, explore
from zol.common.errors import DataError
from zol.session import Agent
from zol.tasks import Task
from zol.worlds import make
from zol.worlds.donut import Donut


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """A small model of the donut."""
    folder = tmp_path_factory.mktemp("starts")
    data = explore(Donut(), folder / "data", ExploreConfig(steps=1000, envs=10, how="random"))
    return zol.pretrain(data, "fb", steps=20, batch_size=64, hidden=32, z_dim=8, dynamics_steps=0)


def beginning(name: str, angle: float) -> Task:
    """Go to the right, from one point of the ring."""
    place = torch.stack([torch.tensor(angle).cos(), torch.tensor(angle).sin()])
    return Task(
        name,
        lambda s: s.obs[..., 0].clamp_min(0),
        starts=lambda n, generator: place.expand(n, 2) + 0.01 * torch.rand(n, 2, generator=generator),
    )


def test_evidence_holds_the_starts_of_every_task(agent: Agent) -> None:
    tasks = [
        beginning("east", 0.0),
        beginning("north", 1.57),
        Task("anywhere", lambda s: s.obs[..., 0].abs()),
    ]
    evidence = agent.label(tasks, starts=16)
    assert evidence.own_starts is not None
    assert evidence.own_starts.shape == (3, 16, 2)
    assert evidence.own_starts[0, :, 0].min() > 0.99
    assert evidence.own_starts[1, :, 1].min() > 0.99
    assert torch.equal(evidence.own_starts[2], evidence.starts)
    assert torch.equal(evidence.only("north").starts, evidence.own_starts[1])
    assert evidence.only("north", "anywhere").own_starts is not None
    shared = agent.label(tasks[2:], starts=16)
    assert shared.own_starts is None
    with pytest.raises(DataError, match="start states of tasks have shape"):
        replace(evidence, own_starts=evidence.own_starts[:2])


@pytest.mark.parametrize("method", ["fb", "zol", "gpi"])
def test_tasks_together_are_what_they_are_one_by_one(agent: Agent, method: str) -> None:
    tasks = [beginning("east", 0.0), beginning("north", 1.57)]
    together = solve(method, agent.problem(tasks, starts=16))
    alone = [solve(method, agent.problem([task], starts=16)) for task in tasks]
    assert torch.equal(together.found.z, torch.cat([one.found.z for one in alone], dim=1))
    assert torch.equal(together.found.estimate, torch.cat([one.found.estimate for one in alone], dim=1))
    if method == "zol":  # the same reward, but the ratio begins elsewhere
        assert not torch.equal(together.found.z[:, 0], together.found.z[:, 1])
    obs = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0))
    if together.policy is not None:
        expected = torch.cat([one.policy(obs[t : t + 1]) for t, one in enumerate(alone) if one.policy])
        assert torch.equal(together.policy(obs), expected)
    assert (together.policy is None) == (alone[0].policy is None)


def test_goals_are_prompts_where_there_are_some(agent: Agent) -> None:
    goal = torch.tensor([0.0, 1.0])
    tasks = [replace(beginning("north", 0.0), goal=goal), beginning("east", 0.0)]
    found = solve("goal", agent.problem(tasks, starts=16)).found
    with torch.no_grad():
        expected = agent.model.project(agent.model.backward(goal.unsqueeze(0)))[0]
    assert torch.allclose(found.z[0, 0], expected, atol=1e-6)
    # Some processors round a row of two otherwise than a row alone.
    torch.testing.assert_close(found.z[0, 1], agent.problem(tasks[1:], starts=16).start[0])
    assert found.diagnostics["goal_given"].tolist() == [[1.0, 0.0]]


def test_the_benchmarks_tasks_exist() -> None:
    from zol.bench.ogbench import TASKS

    for dataset, names in TASKS.items():
        world = make(dataset.rpartition("-")[0])
        for name in names:
            task = world.tasks[name]
            assert task.success is not None
            assert task.starts is not None
            assert task.goal is not None
