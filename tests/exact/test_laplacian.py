"""Laplacian successor features against closed forms on small chains."""

from typing import Any

import pytest
import torch

from zol.data import Batch
from zol.models.laplacian import MODEL, LaplacianConfig, LaplacianLearner
from zol.models.successor_features import RunningCovariance
from zol.worlds.tabular import four_rooms

STATES, GAMMA = 5, 0.6


def linear_features(**changes: object) -> LaplacianConfig:
    """φ is one linear map of one-hot states."""
    fixed: dict[str, Any] = {
        "obs_dim": STATES,
        "action_dim": 2,
        "z_dim": STATES,
        "discount": GAMMA,
        "hidden": 64,
    }
    fixed |= {"backward_layers": 0, "backward_norm": False, "discrete": True, "members": 2}
    return LaplacianConfig(**fixed | {"learning_rate": 1e-3, "target_rate": 0.1} | changes)


def chain() -> Batch:
    """s → s + 1 whatever is done; the last state stays, and the step into it does not end the episode."""
    obs = torch.eye(STATES).repeat_interleave(2, 0)
    following = torch.eye(STATES)[(torch.arange(STATES) + 1).clamp(max=STATES - 1)].repeat_interleave(2, 0)
    action = torch.eye(2).repeat(STATES, 1)
    return Batch(obs, action, following, torch.zeros(2 * STATES, dtype=torch.bool))


@pytest.fixture(scope="module")
def one_hot() -> LaplacianLearner:
    """φ(s) = e_s, held there; ψ trained on every transition of the chain."""
    config = linear_features(backward_learning_rate=1e-12, orthonormality=0.0)
    network = MODEL.network(config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.get_parameter("backward_map.net.0.weight").copy_(torch.eye(STATES))
        network.get_parameter("backward_map.net.0.bias").zero_()
    learner = LaplacianLearner(network, config)
    batch, generator = chain(), torch.Generator().manual_seed(1)
    for step in range(1600):
        learner.scale_learning_rates(min(1.0, (1600 - step) / 1000))
        learner.update(batch, generator)
    return learner


def successor_features() -> torch.Tensor:
    """ψ(s) = Σ_t γ^t P^{t+1}(s, ·) = P (I − γ P)⁻¹, ``[S, S]``."""
    P = chain().next_obs[::2].double()
    return P @ torch.linalg.inv(torch.eye(STATES, dtype=torch.float64) - GAMMA * P)


def test_successor_features_of_one_hot_states_are_the_successor_measure(one_hot: LaplacianLearner) -> None:
    model, batch = one_hot.model, chain()
    z = model.project(torch.randn(20, 1, STATES, generator=torch.Generator().manual_seed(2)))
    psi = model.forward(batch.obs, z, batch.action).mean((0, 1)).detach()
    torch.testing.assert_close(psi.double(), successor_features().repeat_interleave(2, 0), atol=0.03, rtol=0)


def test_whitening_is_the_inverse_of_the_data_density(one_hot: LaplacianLearner) -> None:
    """C = E[e eᵀ] = diag(ρ), so that FᵀB(s') = M(s, s')/ρ(s'), as for any model of the contract."""
    model, batch = one_hot.model, chain()
    density = batch.next_obs.mean(0)
    seen = density > 0  # nothing leads to the first state
    expected = torch.where(seen, 1 / density.clamp_min(1e-9), 0.0)
    torch.testing.assert_close(model.whitening.diagonal(), expected, atol=1e-3, rtol=0)
    z = model.project(torch.randn(20, 1, STATES, generator=torch.Generator().manual_seed(2)))
    F = model.forward(batch.obs[::2], z, batch.action[::2]).mean((0, 1)).detach()
    ratio = F @ model.backward(torch.eye(STATES)).mT
    exact = successor_features()[:, seen] / density[seen]
    torch.testing.assert_close(ratio[:, seen].double(), exact, atol=0.15, rtol=0)


def test_a_terminal_state_has_no_future() -> None:
    """With γ_i = 0 the target is φ(s') alone: the loss of a perfect one-step prediction is zero."""
    config = linear_features(backward_learning_rate=1e-12, orthonormality=0.0)
    network = MODEL.network(config, torch.Generator().manual_seed(0))
    learner = LaplacianLearner(network, config)
    with torch.no_grad():
        for parameter in network.forward_map.parameters():
            parameter.zero_()
    batch = chain()
    ended = Batch(batch.obs, batch.action, batch.next_obs, torch.ones(2 * STATES, dtype=torch.bool))
    phi = network.regressors(batch.next_obs).detach()
    terms = learner.update(ended, torch.Generator().manual_seed(0))
    expected = 0.5 * config.members * phi.square().mean()
    torch.testing.assert_close(terms["successor_features"], expected)


def test_features_become_the_smoothest_eigenvectors() -> None:
    """A random walk on a path with lazy ends has cosines as eigenvectors: φ spans the first d of them."""
    n, d = 12, 3
    config = LaplacianConfig(
        obs_dim=n,
        action_dim=2,
        z_dim=d,
        hidden=8,
        backward_layers=0,
        backward_norm=False,
        discrete=True,
        backward_learning_rate=1e-2,
        discount=0.5,
    )
    learner = LaplacianLearner(MODEL.network(config, torch.Generator().manual_seed(0)), config)
    generator = torch.Generator().manual_seed(3)
    for step in range(1800):
        learner.scale_learning_rates(min(1.0, (1800 - step) / 1200))
        state = torch.randint(n, (256,), generator=generator)
        move = torch.randint(2, (256,), generator=generator)
        following = (state + 2 * move - 1).clamp(0, n - 1)
        eye = torch.eye(n)
        batch = Batch(eye[state], torch.eye(2)[move], eye[following], torch.zeros(256, dtype=torch.bool))
        learner.update(batch, generator)
    phi = learner.model.regressors(torch.eye(n)).detach().double()
    grid = torch.arange(n).double() + 0.5
    cosines = torch.stack([torch.cos(torch.pi * k * grid / n) for k in range(d)], dim=-1)
    angles = torch.linalg.svdvals(torch.linalg.qr(phi)[0].mT @ torch.linalg.qr(cosines)[0])
    assert float(angles.min()) > 0.98
    gram = phi.mT @ phi / n
    assert float((gram - torch.eye(d)).abs().max()) < 0.2


def test_the_running_covariance_begins_as_a_plain_mean() -> None:
    running, rows = (
        RunningCovariance(3, 0.01),
        torch.randn(5, 8, 3, generator=torch.Generator().manual_seed(0)),
    )
    for batch in rows:
        running.see(batch)
    everything = rows.flatten(0, 1)
    torch.testing.assert_close(running.value, everything.mT @ everything / len(everything))


@pytest.mark.parametrize(("d", "low", "high"), [(8, 0.1, 0.4), (50, 0.95, 1.0)])
def test_what_smooth_features_can_say(d: int, low: float, high: float) -> None:
    """The reward of one cell, projected onto the d smoothest features of four rooms, and then solved exactly.

    Few of them point to no goal, however well they are learned; half as many as there are cells point to all.
    """
    mdp = four_rooms().mdp
    behaviour = mdp.transition.double().mean(1)  # uniform actions
    rho = behaviour.mean(0)  # next states of uniform states
    phi = torch.linalg.eigh((behaviour + behaviour.mT) / 2).eigenvectors[:, -d:]
    covariance = (rho.unsqueeze(1) * phi).mT @ phi
    reward = (rho.unsqueeze(1) * phi) @ torch.linalg.inv(covariance) @ phi.mT  # least squares of every goal
    value = torch.zeros_like(reward)
    for _ in range(300):
        Q = torch.einsum("sat,kt->ksa", mdp.transition.double(), reward + mdp.discount * value)
        value = Q.amax(-1)
    goals = torch.eye(mdp.states, dtype=torch.float64)
    greedy = torch.nn.functional.one_hot(Q.argmax(-1), mdp.actions).double()
    share = float(mdp.value(greedy, goals).mean() / mdp.optimal_value(goals).mean())
    assert low < share <= high + 1e-9
