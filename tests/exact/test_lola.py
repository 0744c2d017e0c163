"""LoLA's parts in closed form: values in reward units, n-step returns, and a gradient that is not zero."""

from typing import Literal

import pytest
import torch

from zol.adapt.critic import FrozenCritic
from zol.adapt.environments import TaskEnvironments
from zol.adapt.lola import LoLAConfig, leave_one_out_gradient, lola_search, lookahead_returns
from zol.common.config import ConfigError
from zol.evidence import Evidence
from zol.fields import States
from zol.models.base import Measure
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP, TabularWorld, chain, random_mdp


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def table_task(name: str, rewards: torch.Tensor) -> Task:
    """A reward per state number."""
    return Task(name, lambda s: s["state"].double() @ rewards)


def evidence_of(tasks: dict[str, torch.Tensor], density: torch.Tensor) -> Evidence:
    """A sample that holds state s in exact proportion to ρ(s)."""
    counts = (density * 100).round().long()
    obs = torch.eye(len(density), dtype=torch.float64).repeat_interleave(counts, 0)
    rewards = torch.stack([obs @ r for r in tasks.values()])
    return Evidence(tuple(tasks), obs, rewards, obs[:3])


DENSITY = torch.tensor([0.10, 0.05, 0.25, 0.20, 0.30, 0.10], dtype=torch.float64)
EVERY = torch.eye(6, dtype=torch.float64)


def rewards(seed: int, tasks: int = 2) -> dict[str, torch.Tensor]:
    table = 3 * torch.rand(tasks, 6, generator=generator(seed), dtype=torch.float64)
    return {f"task{t}": row for t, row in enumerate(table)}


class Skewed(ExactFB):
    """The same measure from other factors, B' = A B and F' = A⁻ᵀ F: E[B'B'ᵀ] is far from the identity."""

    def skew(self) -> torch.Tensor:
        noise = torch.randn(6, 6, generator=generator(5), dtype=torch.float64)
        return noise + 3 * torch.eye(6, dtype=torch.float64)

    def backward(self, obs: torch.Tensor) -> torch.Tensor:
        return super().backward(obs) @ self.skew().mT

    def forward(self, obs: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return super().forward(obs, z, action) @ torch.linalg.inv(self.skew())


@pytest.mark.parametrize("kind", [ExactFB, Skewed])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("begins", ["next", "current"])
def test_frozen_values_are_exact_in_units_of_reward(kind, normalised, begins) -> None:
    mdp = random_mdp(6, 3, generator(1))
    measure = Measure(normalised=normalised, begins=begins)
    model = kind(mdp, DENSITY, measure=measure, generator=generator(2))
    named = rewards(3)
    critic = FrozenCritic.of(model, evidence_of(named, DENSITY))
    z = model.project(torch.randn(2, 6, generator=generator(4), dtype=torch.float64))
    obs = EVERY.expand(2, 6, 6)
    r = torch.stack(list(named.values()))  # [T, S]
    value = critic.value(obs, z.unsqueeze(1), model.act(obs, z.unsqueeze(1)), r).squeeze(0)
    policy = model.policy(z)
    P = mdp.under(policy)
    exact = torch.linalg.solve(torch.eye(6, dtype=torch.float64) - mdp.discount * P, P @ r.unsqueeze(-1))
    torch.testing.assert_close(value, exact.squeeze(-1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(critic.predicted_reward(obs), r, rtol=1e-9, atol=1e-9)


def deterministic_chain() -> tuple[TabularWorld, ExactFB]:
    """Certain moves and all but greedy policies: one rollout is the expectation."""
    mdp = chain(6, discount=0.8, slip=0.0)
    mdp = FiniteMDP(mdp.transition, DENSITY, mdp.discount)
    return TabularWorld("chain", mdp), ExactFB(mdp, DENSITY, temperature=1e-4, generator=generator(2))


@pytest.mark.parametrize("horizon", [1, 2, 7])
@pytest.mark.parametrize("begins", ["next", "current"])
def test_lookahead_of_any_length_gives_the_exact_value(
    horizon: int, begins: Literal["next", "current"]
) -> None:
    world, model = deterministic_chain()
    model.measure = Measure(begins=begins)
    named = rewards(6)
    evidence = evidence_of(named, DENSITY)
    tasks = [table_task(name, r) for name, r in named.items()]
    environments = TaskEnvironments(world, tasks, evidence, generator(7))
    z = model.project(torch.randn(2, 6, 6, generator=generator(8), dtype=torch.float64))
    begin = torch.arange(6.0, dtype=torch.float64).reshape(1, 6, 1).expand(2, 6, 1)  # sample k starts in k
    environments.draw(1)
    got = lookahead_returns(
        FrozenCritic.of(model, evidence), environments, begin, z, LoLAConfig(horizon=horizon)
    )
    P = model.mdp.under(model.policy(z))  # [T, k, S, S]
    r = torch.stack(list(named.values())).reshape(2, 1, 6, 1)
    V = torch.linalg.solve(EVERY - 0.8 * P, P @ r).squeeze(-1)
    torch.testing.assert_close(got, V.diagonal(dim1=1, dim2=2), rtol=1e-6, atol=1e-6)
    assert environments.steps == 6 * horizon


def test_gradient_is_that_of_the_log_density_of_constant_samples() -> None:
    """Public code has samples that move with μ (nothing is learned) and densities of projected samples."""
    mean = torch.randn(2, 5, generator=generator(1), dtype=torch.float64).requires_grad_()
    sigma = 0.3
    noise = torch.randn(2, 8, 5, generator=generator(2), dtype=torch.float64)
    sample = mean.detach().unsqueeze(1) + sigma * noise
    returns = torch.randn(2, 8, generator=generator(3), dtype=torch.float64)
    baseline = torch.stack([returns[:, [j for j in range(8) if j != i]].mean(-1) for i in range(8)], -1)

    def surrogate(drawn: torch.Tensor) -> torch.Tensor:
        density = torch.distributions.Normal(mean.unsqueeze(1), sigma).log_prob(drawn).sum(-1)
        return ((returns - baseline) * density).mean(-1).sum()

    (wanted,) = torch.autograd.grad(surrogate(sample), mean)
    got = leave_one_out_gradient(sample, mean.detach(), sigma, returns)
    torch.testing.assert_close(got, wanted)
    (moving,) = torch.autograd.grad(surrogate(mean.unsqueeze(1) + sigma * noise), mean)
    assert float(moving.norm()) < 1e-9 < 1e-2 * float(got.norm())
    onto = sample * (5**0.5 / sample.norm(dim=-1, keepdim=True))
    (projected,) = torch.autograd.grad(surrogate(onto), mean)
    assert float((projected - got).norm()) > 1e-2 * float(got.norm())


def test_gradient_is_unbiased_for_a_linear_return() -> None:
    slope = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    mean = torch.tensor([[0.3, 0.1, -0.7]], dtype=torch.float64)
    sample = mean.unsqueeze(1) + 0.2 * torch.randn(1, 200_000, 3, generator=generator(1), dtype=torch.float64)
    got = leave_one_out_gradient(sample, mean, 0.2, (sample * slope.unsqueeze(1)).sum(-1))
    torch.testing.assert_close(got, slope, rtol=0, atol=0.03)


class Counting(TabularWorld):
    """Counts what really happens."""

    taken = 0

    def step(self, action: torch.Tensor) -> States:
        self.taken += len(action)
        return super().step(action)


def test_steps_are_counted_exactly_and_stay_within_the_budget() -> None:
    _, model = deterministic_chain()
    world = Counting("chain", model.mdp)
    named = rewards(9)
    evidence = evidence_of(named, DENSITY)
    tasks = [table_task(name, r) for name, r in named.items()]
    config = LoLAConfig(environment_steps=40, horizon=3, samples=4)
    found = lola_search(model, evidence, evidence.prompt(model), world, tasks, config, generator=generator(1))
    assert found.z.shape == (1, 2, 6)
    assert found.diagnostics["environment_steps"].tolist() == [[36.0, 36.0]]
    assert world.taken == 2 * 36
    assert found.trace["lookahead"].shape == (3, 1, 2)
    torch.testing.assert_close(found.z, model.project(found.z))
    again = lola_search(model, evidence, evidence.prompt(model), world, tasks, config, generator=generator(1))
    assert torch.equal(found.z, again.z)


def test_practice_never_begins_in_the_tests_start_states() -> None:
    from zol.worlds.donut import Donut

    world = Donut()
    obs = world.reset(20, generator(3)).obs
    evidence = Evidence(("square",), obs, torch.ones(1, 20), obs)
    drawn = TaskEnvironments(world, [world.tasks["square"]], evidence, generator(3)).draw(20)
    assert not torch.isclose(drawn.unsqueeze(1), obs.unsqueeze(0)).all(-1).any()


def test_mistakes_are_explained() -> None:
    world, model = deterministic_chain()
    named = rewards(9)
    evidence = evidence_of(named, DENSITY)
    tasks = [table_task(name, r) for name, r in named.items()]
    start = evidence.prompt(model)
    with pytest.raises(ConfigError, match="1000 environment steps, the budget is 999"):
        lola_search(
            model, evidence, start, world, tasks, LoLAConfig(environment_steps=999), generator=generator()
        )
    with pytest.raises(ConfigError, match="same tasks in the same order"):
        lola_search(model, evidence, start, world, tasks[::-1], generator=generator())
