"""HILP's directions: regression on differences of features, and policies that head for a goal."""

from dataclasses import replace

import pytest
import torch

from zol import prompt
from zol.adapt import solve
from zol.adapt.problem import Problem
from zol.collect.donut import collect
from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.models import MODELS
from zol.models.base import Model
from zol.rollout import evaluate
from zol.worlds.donut import Donut


class Compass(torch.nn.Module):
    """A point whose features are its place, and whose policy steps along z: HILP, learned to perfection."""

    obs_dim = action_dim = z_dim = 2
    discount = 0.9

    def __init__(self) -> None:
        super().__init__()
        from zol.models.base import Measure

        self.measure = Measure()

    def backward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs

    def forward(self, obs: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (obs + action / (1 - self.discount)).unsqueeze(0) + 0 * z

    def act(self, obs: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z / z.norm(dim=-1, keepdim=True).clamp_min(1e-9) + 0 * obs

    def project(self, z: torch.Tensor) -> torch.Tensor:
        return z * 2**0.5 / z.norm(dim=-1, keepdim=True).clamp_min(1e-9)


def problem(model: Model) -> Problem:
    world = Donut()
    data = collect(1_000, torch.Generator().manual_seed(0))
    tasks = {name: world.tasks[name] for name in ("square", "cross")}
    evidence = Evidence.gather(data, tasks, world.layout, samples=400, starts=16)
    return Problem(model, evidence, "donut", tasks, world.layout, world)


def test_differences_are_a_regression_on_what_steps_change() -> None:
    entry = MODELS["hilp"]
    model = entry.network(entry.config(obs_dim=2, action_dim=2, z_dim=5, hidden=16, backward_hidden=16))
    given = problem(model)
    evidence = given.evidence
    assert evidence.before is not None
    found = prompt.differences(model, evidence.before, evidence.obs, evidence.rewards)
    parts = prompt.differences(model, evidence.before, evidence.obs, evidence.rewards, chunk=64)
    torch.testing.assert_close(parts, found, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        change = (model.regressors(evidence.obs) - model.regressors(evidence.before)).double()
    slow = torch.linalg.lstsq(change, evidence.rewards.double().mT).solution.mT
    torch.testing.assert_close(
        found.double(), slow * 5**0.5 / slow.norm(dim=-1, keepdim=True), rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(solve("differences", given).found.z[0], found, rtol=1e-5, atol=1e-6)
    larger = prompt.differences(model, evidence.before, evidence.obs, 2.0**90 * evidence.rewards)
    assert torch.equal(larger, found)
    with pytest.raises(DataError, match="need whole transitions"):
        solve("differences", replace(given, evidence=replace(evidence, before=None)))
    with pytest.raises(DataError, match="cannot be explained"):
        prompt.differences(model, evidence.obs, evidence.obs, evidence.rewards)


def test_sums_of_differences_rank_actions_like_sums_of_features() -> None:
    """Σ γ^t (φ_{t+1} − φ_t) = (1 − γ) ψ − φ_0, on random sequences that have come to rest."""
    phi = torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = 0.9 ** torch.arange(399, dtype=torch.float64)
    psi = (weight.unsqueeze(1) * phi[1:]).sum(0)
    change = (weight.unsqueeze(1) * (phi[1:] - phi[:-1])).sum(0)
    torch.testing.assert_close(change, 0.1 * psi - phi[0], rtol=0, atol=1e-12)


def test_towards_heads_for_the_goal_anew_in_every_state() -> None:
    given = problem(Compass())
    goal = torch.tensor([0.0, 0.8])
    tasks = {name: replace(task, goal=goal) for name, task in given.tasks.items()}
    behaviour = solve("towards", replace(given, tasks=tasks))
    assert behaviour.policy is not None
    obs = torch.tensor([[[0.0, 0.3], [0.5, 0.8]]]).expand(2, 2, 2)
    expected = torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]]).expand(2, 2, 2)
    torch.testing.assert_close(behaviour.policy(obs), expected)
    assert given.world is not None
    ran = evaluate(
        given.world,
        given.model,
        behaviour.found.latents(),
        episodes=4,
        generator=torch.Generator().manual_seed(0),
        policy=behaviour.policy,
        tasks=list(tasks.values()),
        keep_visited=True,
    )
    assert ran.visited is not None
    first, last = ((ran.visited[k] - goal).norm(dim=-1).mean() for k in (0, -1))
    assert float(last) < 0.5 * float(first)


def test_towards_a_task_without_a_goal_is_towards_what_pays_most() -> None:
    given = problem(Compass())
    behaviour = solve("towards", given)
    evidence = given.evidence
    best = evidence.obs[evidence.rewards.argmax(-1)]
    assert behaviour.policy is not None
    action = behaviour.policy(torch.zeros(2, 1, 2))
    torch.testing.assert_close(action, (best / best.norm(dim=-1, keepdim=True)).unsqueeze(1))
