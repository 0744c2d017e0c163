"""LoLA practises its way out of a bad latent, on a finite MDP that is judged exactly."""

import torch

from zol.adapt import Evidence
from zol.adapt.lola import LoLAConfig, lola_search
from zol.models.exact import ExactFB
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
