"""The offline worth of latents is exact where the model is exact, and its intervals mean what they say."""

import pytest
import torch
from torch import Tensor

from zol import measure, prompt, value
from zol.bench.ranking import spearman
from zol.evidence import Evidence
from zol.models.base import Measure
from zol.testing.exact import ExactFB
from zol.worlds.tabular import random_mdp

STATES = 8


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact_case(**facts: object) -> tuple[ExactFB, Evidence, Tensor]:
    """A random MDP whose data are uniform, so that one row per state is an exact sample of them."""
    mdp = random_mdp(STATES, 3, generator(2))
    density = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    model = ExactFB(mdp, density, measure=Measure(**facts), generator=generator())
    obs = torch.eye(STATES, dtype=torch.float64)
    rewards = torch.rand(2, STATES, generator=generator(1), dtype=torch.float64)
    z = model.project(torch.randn(5, STATES, generator=generator(3), dtype=torch.float64))
    return model, Evidence(("a", "b"), obs, rewards, obs[:3]), z


def true_returns(model: ExactFB, evidence: Evidence, z: Tensor) -> Tensor:
    """(1 − γ) Σ_t γ^t r(s_{t+1}) from the three start states, by linear algebra, ``[K, T]``."""
    policy = model.policy(z)  # [K, S, A]
    M = model.mdp.successor(policy)  # [K, S, A, S]
    from_state = torch.einsum("ksa,ksat->kst", policy, M)[:, :3].mean(1)
    return (1 - model.discount) * from_state @ evidence.rewards.mT


@pytest.mark.parametrize("normalised", [False, True])
def test_ratio_and_value_are_exact_with_an_exact_model(normalised: bool) -> None:
    model, evidence, z = exact_case(normalised=normalised)
    wanted = true_returns(model, evidence, z)
    assert torch.allclose(value.by_ratio(model, evidence, z).mean, wanted, atol=1e-8)
    assert torch.allclose(value.by_value(model, evidence, z).mean, wanted, atol=1e-8)


def test_error_of_the_ratio_is_that_of_importance_sampling() -> None:
    model, evidence, z = exact_case()
    got = value.by_ratio(model, evidence, z)
    raw = measure.raw_ratio(
        model,
        measure.forward_mean(model, evidence.starts, z),
        prompt.backward_features(model, evidence.obs),
    )
    for k in range(len(z)):
        for t in range(2):
            J = (raw[k] * evidence.rewards[t]).sum() / raw[k].sum()
            slow = (raw[k].square() * (evidence.rewards[t] - J).square()).sum().sqrt() / raw[k].sum()
            assert got.error[k, t] == pytest.approx(float(slow), rel=1e-6)


def test_intervals_cover_members_and_starts() -> None:
    values = torch.randn(4, 3, 2, 50, generator=generator()) + 10 * torch.arange(3).reshape(1, 3, 1, 1)
    worth = value._over_members_and_starts(values)
    assert worth.mean.shape == (4, 2)
    assert (worth.low < worth.mean).all()
    assert (worth.mean < worth.high).all()
    assert torch.allclose(worth.diagnostics["doubt"], torch.full((4, 2), 10.0), atol=0.5)


def test_rank_correlation_is_the_usual_one() -> None:
    from scipy.stats import spearmanr

    x = torch.randn(30, generator=generator(4)).round(decimals=1)  # with ties
    y = x + torch.randn(30, generator=generator(5)).round(decimals=1)
    assert spearman(x, y) == pytest.approx(float(spearmanr(x, y).statistic))
    assert spearman(x, torch.ones(30)) == 0.0
