"""OptiDICE's weights are those of the regularised optimum, found by brute force on small MDPs."""

import numpy as np
import pytest
import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.value.optidice import (
    Divergence,
    OptiDICESettings,
    best_weights,
    conjugate,
    optidice,
    optidice_weights,
)

optimize = pytest.importorskip("scipy.optimize")

S, A, GAMMA = 4, 2, 0.8
EVERY = torch.eye(S, dtype=torch.float64)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def f(w: np.ndarray, divergence: Divergence) -> np.ndarray:
    square = 0.5 * (w - 1) ** 2
    if divergence == "chi2":
        return square
    small = np.maximum(w, 1e-300)
    return np.where(w >= 1, square, small * np.log(small) - small + 1)


def transition(seed: int, chance: bool) -> Tensor:
    """P(s' | s, a); without chance every action leads to one state."""
    if chance:
        P = torch.rand(S, A, S, generator=seeded(seed), dtype=torch.float64) ** 3
        return P / P.sum(-1, keepdim=True)
    return EVERY[torch.randint(S, (S, A), generator=seeded(seed))]


def brute_force(
    P: Tensor, reward: Tensor, data: Tensor, start: Tensor, alpha: float, divergence: Divergence, over: Tensor
) -> np.ndarray:
    """max_d E_d[r] − α E_β[f(d/β)] over occupancies d(s, a) ≥ 0 by a general solver; returns d/β."""
    p, r, beta = P.numpy(), reward.numpy(), data.numpy().reshape(-1)
    goes_on = p * (~over.numpy())  # nothing flows out of a state where episodes end
    inflow = GAMMA * goes_on.reshape(S * A, S).T
    flow = np.kron(np.eye(S), np.ones(A)) - inflow  # Σ_a d(s, a) − γ Σ P d
    gain = np.einsum("sat,t->sa", p, r).reshape(-1)
    right = (1 - GAMMA) * start.numpy()
    found = optimize.minimize(
        lambda w: -(beta * w) @ gain + alpha * beta @ f(w, divergence),
        np.ones(S * A),
        method="SLSQP",
        bounds=[(0.0, None)] * (S * A),
        constraints={"type": "eq", "fun": lambda w: flow @ (beta * w) - right, "jac": lambda w: flow * beta},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert np.abs(flow @ (beta * found.x) - right).max() < 1e-8
    return found.x


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("divergence", ["chi2", "soft-chi2"])
@pytest.mark.parametrize("chance", [False, True])
def test_weights_of_the_regularised_optimum(divergence: Divergence, chance: bool, normalised: bool) -> None:
    """Rows are pairs (s, a) as often as the data hold them; s' is a mixture, in which ν is linear."""
    P = transition(3, chance)
    count = torch.randint(1, 4, (S, A), generator=seeded(4))
    pairs = torch.cartesian_prod(torch.arange(S), torch.arange(A))
    s, a = pairs.repeat_interleave(count.flatten(), 0).unbind(-1)
    state_reward = torch.rand(S, generator=seeded(5), dtype=torch.float64)
    rewards = (P @ state_reward)[s, a]
    starts = EVERY[[0, 0, 1]]
    evidence = Evidence(
        ("a",), P[s, a], rewards[None], starts, "", EVERY[s], EVERY[:2, :2][a], torch.zeros(len(s)).bool()
    )
    alpha = 0.2
    settings = OptiDICESettings(layers=0, alpha=alpha, divergence=divergence, normalised=normalised)
    found = optidice(evidence, rewards, GAMMA, settings)
    data, unit = count.double() / len(s), float(rewards.std(correction=0))
    never = torch.zeros(S, dtype=torch.bool)
    slow = brute_force(P, state_reward, data, starts.mean(0), alpha * unit, divergence, never)
    got = found.weights[0].numpy()
    np.testing.assert_allclose(got, slow[(s * A + a).numpy()], atol=2e-4)
    # The dual objective at its minimum is the primal one: there is no gap.
    primal = data.flatten().numpy() @ (slow * (P @ state_reward).flatten().numpy()) - alpha * unit * (
        data.flatten().numpy() @ f(slow, divergence)
    )
    assert float(found.objective) == pytest.approx(primal, abs=1e-5)
    assert float(found.value) == pytest.approx(float((got * rewards.numpy()).mean()), abs=1e-5)
    if divergence == "chi2":  # the constraint w ≥ 0 binds in one of them at least
        assert chance or float(got.min()) < 1e-6


def test_nothing_follows_where_an_episode_ended() -> None:
    P, over = transition(7, chance=False), torch.tensor([False, False, False, True])
    s, a = torch.cartesian_prod(torch.arange(S - 1), torch.arange(A)).unbind(-1)
    state_reward = torch.tensor([0.1, 0.5, 0.2, 1.0], dtype=torch.float64)
    after = P[s, a]
    rewards = after @ state_reward
    evidence = Evidence(
        ("a",), after, rewards[None], EVERY[:1], "", EVERY[s], EVERY[:2, :2][a], after[:, 3].bool()
    )
    assert after[:, 3].any()
    settings = OptiDICESettings(layers=0, alpha=0.3, divergence="soft-chi2", normalised=False)
    got = optidice_weights(evidence, rewards, GAMMA, settings)
    data = torch.zeros(S, A, dtype=torch.float64)
    data[s, a] = 1 / len(s)
    data[3] = 1e-9  # never visited: no flow reaches it
    unit = float(rewards.std(correction=0))
    slow = brute_force(P, state_reward, data, EVERY[0], 0.3 * unit, "soft-chi2", over)
    np.testing.assert_allclose(got.numpy(), slow[(s * A + a).numpy()], atol=2e-4)


@pytest.mark.parametrize("divergence", ["chi2", "soft-chi2"])
def test_closed_forms_of_the_divergences(divergence: Divergence) -> None:
    """Against a search on a fine grid of weights."""
    grid = np.linspace(0, 6, 600_001)
    for y in (-3.0, -1.0, -0.2, 0.0, 0.7, 4.0):
        gain = grid * y - f(grid, divergence)
        value = torch.tensor(y, dtype=torch.float64)
        assert float(best_weights(value, divergence)) == pytest.approx(grid[gain.argmax()], abs=1e-5)
        assert float(conjugate(value, divergence)) == pytest.approx(gain.max(), abs=1e-8)


def chain_data() -> tuple[Evidence, Tensor]:
    """A line on which going right pays at its end; data of random steps."""
    position = torch.rand(3_000, 1, generator=seeded(1)) * 2 - 1
    step = torch.rand(3_000, 1, generator=seeded(2)) * 2 - 1
    after = (position + 0.3 * step).clamp(-1, 1)
    reward = (after > 0.8).float().squeeze(-1)
    starts = torch.rand(64, 1, generator=seeded(3)) * 2 - 1
    never = torch.zeros(3_000, dtype=torch.bool)
    return Evidence(("right",), after, reward[None], starts, "", position, step, never), reward


def test_networks_prefer_what_leads_to_reward() -> None:
    evidence, reward = chain_data()
    settings = OptiDICESettings(steps=60, hidden=16, alpha=0.3, learning_rate=1e-2)
    found = optidice(evidence, reward, 0.9, settings, generator=seeded(0))
    assert evidence.action is not None
    right = evidence.action.squeeze(-1) > 0
    w = found.weights[0]
    assert float(w[right].mean()) > 2 * float(w[~right].mean())
    assert float(found.value) > 2 * float(reward.mean())
    assert float(w.mean()) == pytest.approx(1, abs=0.2)
    again = optidice_weights(evidence, reward, 0.9, settings, generator=seeded(0))
    assert torch.equal(w, again)
    # Tasks do not disturb each other, and a unit of reward changes nothing.
    several = torch.stack([1 - reward, 4 * reward])
    both = optidice_weights(evidence, several, 0.9, settings, generator=seeded(0))
    torch.testing.assert_close(both[1], w)


def test_mistakes_are_explained() -> None:
    evidence, reward = chain_data()
    with pytest.raises(DataError, match="3000 transitions need"):
        optidice_weights(evidence, reward[:7], 0.9)
    states = Evidence(evidence.tasks, evidence.obs, evidence.rewards, evidence.starts)
    with pytest.raises(DataError, match="whole transitions"):
        optidice_weights(states, reward, 0.9)
