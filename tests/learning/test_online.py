"""LoLA and ReLA practise their way out of a bad latent, on a finite MDP that is judged exactly."""

from typing import Any

import pytest
import torch

from zol.adapt.lola import LoLAConfig, lola_search
from zol.adapt.rela import ReLAConfig, rela_search
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.worlds.donut import Donut
from zol.worlds.tabular import FiniteMDP, TabularWorld, chain

STATES = 7
GOALS = (0, STATES - 1)


def corridor() -> tuple[TabularWorld, ExactFB, Evidence]:
    """Wanted: one end of a corridor, or the other."""
    uniform = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    mdp = FiniteMDP(chain(STATES, discount=0.7, slip=0.05).transition, uniform, 0.7)
    model = ExactFB(mdp, uniform, temperature=0.02, generator=torch.Generator().manual_seed(0))
    every = torch.eye(STATES, dtype=torch.float64)
    evidence = Evidence(tuple(f"goal_{g}" for g in GOALS), every, every[list(GOALS)], every)
    return TabularWorld("corridor", mdp, episode_length=20), model, evidence


def true_returns(model: ExactFB, z: torch.Tensor) -> torch.Tensor:
    """Exact return of each latent's greedy policy, which is what the world runs, ``[T]``."""
    chosen = model.policy(z).argmax(-1)
    policy = torch.nn.functional.one_hot(chosen, 2).double()
    return model.mdp.value(policy, torch.eye(STATES, dtype=torch.float64)[list(GOALS)])


def bad_start(model: ExactFB, evidence: Evidence) -> torch.Tensor:
    """The latents of the opposite goals, a little off."""
    noise = torch.randn(2, STATES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return model.project(evidence.prompt(model).flip(0) + 0.5 * noise)


def test_lola_finds_the_way_from_the_wrong_latent_and_leaves_the_model_alone() -> None:
    world, model, evidence = corridor()
    start, before = bad_start(model, evidence), {k: v.clone() for k, v in model.state_dict().items()}
    config = LoLAConfig(environment_steps=6_000, horizon=4, samples=20, sigma=0.5, learning_rate=0.2)
    tasks = [world.tasks[name] for name in evidence.tasks]
    found = lola_search(
        model, evidence, start, world, tasks, config, generator=torch.Generator().manual_seed(2)
    )
    best = model.mdp.optimal_value(torch.eye(STATES, dtype=torch.float64)[list(GOALS)])
    assert bool((true_returns(model, start) < 0.3 * best).all())
    assert bool((true_returns(model, found.z[0]) > 0.9 * best).all()), found.trace["lookahead"]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_rela_finds_the_way_from_the_wrong_latent_and_leaves_the_model_alone() -> None:
    world, model, evidence = corridor()
    start, before = bad_start(model, evidence), {k: v.clone() for k, v in model.state_dict().items()}
    config = ReLAConfig(
        environment_steps=1_200,
        environments=20,
        warmup=200,
        updates_per_step=0.1,
        batch_size=32,
        learning_rate=0.1,
        critic_learning_rate=1e-3,
    )
    tasks = [world.tasks[name] for name in evidence.tasks]
    found = rela_search(
        model, evidence, start, world, tasks, config, generator=torch.Generator().manual_seed(2)
    )
    best = model.mdp.optimal_value(torch.eye(STATES, dtype=torch.float64)[list(GOALS)])
    assert bool((true_returns(model, found.z[0]) > 0.7 * best).all()), found.trace["value"]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_residual_learns_what_the_features_miss_across_the_ends_of_episodes() -> None:
    """A reward of one everywhere, of which the labelled sample shows nothing, in episodes of three steps.

    Every state is worth 1/(1 − γ) = 3.33. Were the end of an episode an end of the world, it would be
    1 + γ + γ² = 2.19 at most.
    """
    world = Donut()
    world.episode_length = 3
    generator = torch.Generator().manual_seed(0)
    shape: dict[str, Any] = {"z_dim": 4, "discount": 0.7, "hidden": 8, "backward_hidden": 8}
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, **shape), generator)
    obs = world.reset(200, generator).obs
    evidence = Evidence(("ones",), obs, torch.zeros(1, 200), obs)
    config = ReLAConfig(
        environment_steps=3_000,
        environments=30,
        warmup=300,
        updates_per_step=0.4,
        batch_size=64,
        critic_learning_rate=3e-3,
        target_rate=0.05,
    )
    start = torch.randn(1, 4, generator=generator)
    ones = Task("ones", lambda s: torch.ones(s.obs.shape[:-1]))
    found = rela_search(model, evidence, start, world, [ones], config, generator=generator)
    assert float(found.trace["value"][-200:].mean()) == pytest.approx(1 / (1 - 0.7), rel=0.05)
