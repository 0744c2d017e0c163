"""Health numbers are the identities they claim to be: met by an exact model, missed by a broken one."""

import pytest
import torch
from torch import Tensor

from zol.data import Batch
from zol.testing.exact import ExactFB
from zol.train.health import HealthSample, check_health
from zol.worlds.tabular import chain

MDP = chain(slip=0.0)  # without chance the Bellman equation holds transition by transition
STATES, ACTIONS = MDP.states, MDP.actions


def held(copies: int = 20) -> HealthSample:
    """Every state with every action, so that averages over the sample are exact expectations."""
    state, action = (
        grid.flatten() for grid in torch.meshgrid(torch.arange(STATES), torch.arange(ACTIONS), indexing="ij")
    )
    state, action = state.repeat(copies), action.repeat(copies)
    eye = torch.eye(STATES, dtype=torch.float64)
    following = MDP.transition[state, action].argmax(-1)
    batch = Batch(
        eye[state],
        torch.eye(ACTIONS, dtype=torch.float64)[action],
        eye[following],
        torch.zeros(len(state), dtype=torch.bool),
    )
    directions = torch.randn(
        len(state), STATES, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return HealthSample(batch, eye, directions)


def density(sample: HealthSample) -> Tensor:
    return sample.batch.next_obs.mean(0)


class Broken(ExactFB):
    """F too large, or B without some of its dimensions."""

    scale, lost = 1.0, 0

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        return self.scale * super().forward(obs, z, action)

    def backward(self, obs: Tensor) -> Tensor:
        B = super().backward(obs)
        kept = (torch.arange(STATES) >= self.lost).double()
        return B * kept


@pytest.fixture(scope="module")
def sample() -> HealthSample:
    return held()


def health(sample: HealthSample, **faults: float) -> dict[str, float]:
    model = Broken(MDP, density(sample), generator=torch.Generator().manual_seed(0))
    for name, value in faults.items():
        setattr(model, name, value)
    return {name: float(value) for name, value in check_health(model, sample).items()}


def test_an_exact_model_is_healthy(sample: HealthSample) -> None:
    found = health(sample)
    small = 2 * STATES / len(sample.batch)  # pairs i ≠ j of a finite sample leave out the diagonal
    assert found["covariance_gap"] < small**0.5
    assert found["rank"] == pytest.approx(STATES, rel=2 * small)
    assert found["ratio_mean"] == pytest.approx(1, abs=1e-8)
    assert found["ratio_error"] == pytest.approx(0, abs=1e-8)
    assert found["ratio_negative"] == 0
    assert found["bellman_residual"] == pytest.approx(0, abs=1e-8)
    assert found["bellman_mass"] == pytest.approx(1, abs=small)
    assert found["Q_gain"] > 0
    assert found["F_disagreement"] == 0


def test_a_measure_of_the_wrong_mass_shows(sample: HealthSample) -> None:
    found, right = health(sample, scale=1.5), health(sample)
    assert found["ratio_mean"] == pytest.approx(1.5, abs=1e-8)
    assert found["ratio_error"] == pytest.approx(0.5, abs=1e-8)
    # ε = 0.5 B, E‖B‖² = S and C = I
    assert found["bellman_residual"] == pytest.approx(0.5 * STATES**0.5 / found["F_norm"])
    assert found["bellman_mass"] == pytest.approx(1.5 * right["bellman_mass"])
    assert found["F_norm"] == pytest.approx(1.5 * right["F_norm"])
    assert found["F_variance"] == pytest.approx(right["F_variance"])


def test_lost_dimensions_show(sample: HealthSample) -> None:
    found = health(sample, lost=3)
    assert found["rank"] < STATES - 2
    assert found["covariance_gap"] > 0.5
    assert found["ratio_error"] > 0.05
