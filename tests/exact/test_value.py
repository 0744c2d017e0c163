"""Intervals of offline estimates mean what they say; their means are in test_conventions.py."""

import pytest
import torch
from torch import Tensor

from zol import measure, prompt
from zol.evidence import Evidence
from zol.testing.exact import ExactFB
from zol.value import ESTIMATORS, ValueProblem
from zol.value.base import over_members_and_starts
from zol.worlds.tabular import random_mdp

STATES = 8


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact_case() -> tuple[ExactFB, Evidence, Tensor]:
    """A random MDP whose data are uniform, so that one row per state is an exact sample of them."""
    mdp = random_mdp(STATES, 3, generator(2))
    density = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    model = ExactFB(mdp, density, generator=generator())
    obs = torch.eye(STATES, dtype=torch.float64)
    rewards = torch.rand(2, STATES, generator=generator(1), dtype=torch.float64)
    z = model.project(torch.randn(5, STATES, generator=generator(3), dtype=torch.float64))
    return model, Evidence(("a", "b"), obs, rewards, obs[:3]), z


def test_error_of_the_ratio_is_that_of_importance_sampling() -> None:
    model, evidence, z = exact_case()
    got = ESTIMATORS["ratio"].estimate(ValueProblem(model, evidence), z)
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
    found = over_members_and_starts(values)
    assert found.mean.shape == (4, 2)
    assert (found.low < found.mean).all()
    assert (found.mean < found.high).all()
    assert torch.allclose(found.diagnostics["doubt"], torch.full((4, 2), 10.0), atol=0.5)
