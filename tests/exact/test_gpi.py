"""GPI is never worse than its best candidate, in any state, when F is exact; and rollouts can run it."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from zol.adapt import candidate_latents, gpi_policy
from zol.adapt.candidates import goal_latents, prompt_latents, random_latents
from zol.adapt.gpi import GPI
from zol.common.config import ConfigError
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.rollout import evaluate
from zol.testing.exact import ExactFB
from zol.worlds.donut import Donut
from zol.worlds.tabular import TabularWorld, random_mdp

STATES, TASKS = 8, 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def exact() -> ExactFB:
    mdp = random_mdp(STATES, 3, generator(1), discount=0.8)
    density = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    return ExactFB(mdp, density, temperature=1e-3, generator=generator(2))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    every = torch.eye(STATES, dtype=torch.float64)
    rewards = torch.rand(TASKS, STATES, generator=generator(3), dtype=torch.float64)
    return Evidence(tuple(f"task{t}" for t in range(TASKS)), every, rewards, every)


def state_values(model: ExactFB, policy: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """V(s) ``[..., S]`` of policies ``[..., S, A]``."""
    P = model.mdp.under(policy)
    eye = torch.eye(STATES, dtype=torch.float64)
    return torch.linalg.solve(eye - model.discount * P, P @ rewards.unsqueeze(-1)).squeeze(-1)


def test_gpi_is_at_least_its_best_candidate_in_every_state(exact: ExactFB, evidence: Evidence) -> None:
    z = exact.project(torch.randn(TASKS, 5, STATES, generator=generator(4), dtype=torch.float64))
    rule = gpi_policy(exact, evidence, z)
    every = torch.eye(STATES, dtype=torch.float64).expand(TASKS, -1, -1)
    improved = state_values(exact, rule(every), evidence.rewards)  # [T, S]
    candidates = state_values(exact, exact.policy(z), evidence.rewards.unsqueeze(1))  # [T, K, S]
    torch.testing.assert_close(rule.weigh(every)[1], candidates.mT, rtol=1e-8, atol=1e-8)
    best = candidates.amax(1)
    assert bool((improved >= best - 1e-9).all())
    assert float((improved - best).max()) > 1e-3  # somewhere it is better than any of them
    chosen = rule.best()
    assert chosen.diagnostics["candidate"][0].tolist() == candidates.mean(-1).argmax(-1).tolist()
    assert chosen.diagnostics["environment_steps"].sum() == 0
    torch.testing.assert_close(chosen.z[0, 1], z[1, int(chosen.diagnostics["candidate"][0, 1])])


def test_one_candidate_is_that_latents_own_policy(exact: ExactFB, evidence: Evidence) -> None:
    z = evidence.prompt(exact)
    every = torch.eye(STATES, dtype=torch.float64).expand(TASKS, -1, -1)
    got = gpi_policy(exact, evidence, z.unsqueeze(1))(every)
    torch.testing.assert_close(got, exact.act(every, z.unsqueeze(1)))


def test_rollouts_run_the_policy_and_earn_its_exact_value(exact: ExactFB, evidence: Evidence) -> None:
    world = TabularWorld("random", exact.mdp)
    world.tasks = {name: _table(name, r) for name, r in zip(evidence.tasks, evidence.rewards, strict=True)}
    z = exact.project(torch.randn(TASKS, 4, STATES, generator=generator(4), dtype=torch.float64))
    rule = gpi_policy(exact, evidence, z)
    # A table of the rule, so that rollouts need no value iteration at every step.
    table = rule(torch.eye(STATES, dtype=torch.float64).expand(TASKS, -1, -1))
    greedy = functional.one_hot(table.argmax(-1), 3).double()
    result = evaluate(
        world,
        exact,
        rule.best().latents(),
        policy=lambda obs: obs.double() @ greedy,
        episodes=3000,
        steps=40,
        generator=generator(5),
    )
    exact_value = exact.mdp.value(greedy, evidence.rewards)
    torch.testing.assert_close(result.discounted.mean(-1), exact_value, rtol=0, atol=0.01)


def _table(name, rewards):
    from zol.tasks import Task

    return Task(name, lambda s: s["state"].double() @ rewards)


def test_a_pool_of_prompts_and_goals_runs_on_the_donut_and_pessimism_matters() -> None:
    world = Donut()
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=16), generator())
    states = world.reset(300, generator(1))
    evidence = Evidence.label(states, world.tasks, states.obs[:20])
    more = model.project(torch.randn(5, 8, generator=generator(2)))
    pool = candidate_latents(model, evidence, more, goals=3)
    assert pool.shape == (5, 6 + 1 + 3, 8)
    torch.testing.assert_close(pool[:, 6], more)
    rule, careful = (gpi_policy(model, evidence, pool, pessimism=p) for p in (0.0, 0.5))
    result = evaluate(
        world, model, rule.best().latents(), policy=rule, episodes=4, steps=5, generator=generator(3)
    )
    assert result.returns.shape == (5, 4)
    obs = states.obs[:20].expand(5, -1, -1)
    F = model.forward(obs.unsqueeze(-2), pool.unsqueeze(1), model.act(obs.unsqueeze(-2), pool.unsqueeze(1)))
    moment = rule.critic.moment.reshape(5, 1, 1, 8)
    torch.testing.assert_close(rule.weigh(obs)[1], (F * moment).sum(-1).mean(0))
    torch.testing.assert_close(careful.weigh(obs)[1], (F * moment).sum(-1).amin(0))


def test_candidates_are_prompts_goals_and_latents_as_in_training(exact: ExactFB, evidence: Evidence) -> None:
    prompts = prompt_latents(exact, evidence)
    assert prompts.shape == (TASKS, 6, STATES)
    torch.testing.assert_close(prompts[:, 0], evidence.prompt(exact))
    torch.testing.assert_close(prompts[:, 3], evidence.prompt(exact, "ridge", centre=True))
    best = evidence.rewards.topk(3).indices
    goals = goal_latents(exact, evidence, 3)
    torch.testing.assert_close(goals, exact.project(exact.backward(evidence.obs[best])))
    drawn = goal_latents(exact, evidence, 2, among=3, generator=generator(6))
    assert all(bool((drawn[t, k] == goals[t]).all(-1).any()) for t in range(TASKS) for k in range(2))
    assert not torch.equal(drawn[:, 0], drawn[:, 1])
    noise = random_latents(exact, 5, generator(7))
    torch.testing.assert_close(noise, exact.project(noise))


def test_a_reward_that_never_varies_has_no_centred_prompts(exact: ExactFB, evidence: Evidence) -> None:
    constant = replace(evidence, rewards=torch.ones_like(evidence.rewards))
    assert prompt_latents(exact, constant).shape == (TASKS, 3, STATES)
    assert candidate_latents(exact, constant, goals=2).shape == (TASKS, 5, STATES)


def test_wrong_shapes_are_explained(exact: ExactFB, evidence: Evidence) -> None:
    with pytest.raises(ConfigError, match=r"need \(3, K ≥ 1, 8\)"):
        gpi_policy(exact, evidence, evidence.prompt(exact))
    assert isinstance(gpi_policy(exact, evidence, evidence.prompt(exact).unsqueeze(1)), GPI)
