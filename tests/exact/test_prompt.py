"""Closed-form latents: against the plain formulas, chunked, batched, and on bad input."""

import pytest
import torch

from zol import prompt
from zol.common.errors import DataError
from zol.models import MODELS
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network


@pytest.fixture(scope="module")
def model() -> Network:
    return fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16, backward_hidden=16))


@pytest.fixture(scope="module")
def obs() -> torch.Tensor:
    return torch.randn(500, 3, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def rewards(obs: torch.Tensor) -> torch.Tensor:
    return torch.stack([(obs[:, 0] > 0).float(), obs[:, 1], obs.square().sum(-1)])


def on_sphere(z: torch.Tensor) -> torch.Tensor:
    return z / z.norm(dim=-1, keepdim=True) * z.shape[-1] ** 0.5


def test_correlation_is_the_mean_of_B_r(model: Network, obs: torch.Tensor, rewards: torch.Tensor) -> None:
    B = model.backward(obs).detach()
    expected = torch.stack([on_sphere((B * r.unsqueeze(-1)).mean(0)) for r in rewards])
    torch.testing.assert_close(prompt.reward(model, obs, rewards), expected, rtol=1e-4, atol=1e-5)


def test_ridge_is_least_squares(model: Network, obs: torch.Tensor, rewards: torch.Tensor) -> None:
    B = model.backward(obs).detach().double()
    expected = torch.linalg.lstsq(B, rewards.double().mT).solution.mT
    got = prompt.reward(model, obs, rewards, "ridge", ridge=1e-9)
    torch.testing.assert_close(got, on_sphere(expected).float(), rtol=1e-3, atol=1e-4)


def test_ridge_recovers_a_linear_reward_exactly(model: Network, obs: torch.Tensor) -> None:
    z = model.project(torch.randn(6))
    r = (model.backward(obs) @ z).detach()
    torch.testing.assert_close(prompt.reward(model, obs, r, "ridge", ridge=1e-9), z, rtol=1e-3, atol=1e-3)


def test_features_are_the_latents_of_single_states(obs: torch.Tensor) -> None:
    """E[φ r] of a reward for one state is φ of it: the very latent that TD-JEPA has for it in training."""
    entry = MODELS["td_jepa"]
    config = entry.config(obs_dim=3, action_dim=2, z_dim=6, hidden=16, backward_hidden=16)
    model = entry.network(config)
    model.whiten_on(obs)
    learner = entry.learner(model, config)
    only = torch.eye(len(obs))[7]
    z = prompt.reward(model, obs, only, "features").detach()
    torch.testing.assert_close(z, model.project(model.regressors(obs[7])).detach())
    torch.testing.assert_close(z, model.project(learner.goal_latents(obs[7])).detach())
    apart = torch.nn.functional.cosine_similarity(z, prompt.reward(model, obs, only, "least_squares"), dim=0)
    assert float(apart.detach()) < 0.9  # least squares asks for another one


def test_weighted_is_softmax_regression(model: Network, obs: torch.Tensor, rewards: torch.Tensor) -> None:
    B = model.backward(obs).detach()
    w = torch.softmax(10 * rewards, dim=-1)
    expected = on_sphere((w * rewards) @ B)
    torch.testing.assert_close(prompt.reward(model, obs, rewards, "weighted"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["correlation", "ridge", "weighted"])
def test_batched_and_chunked_change_nothing(
    model: Network, obs: torch.Tensor, rewards: torch.Tensor, how: prompt.RewardPrompt
) -> None:
    whole = prompt.reward(model, obs, rewards, how)
    chunked = prompt.reward(model, obs, rewards, how, chunk=7)
    torch.testing.assert_close(whole, chunked, rtol=1e-5, atol=1e-6)
    one_by_one = torch.stack([prompt.reward(model, obs, r, how) for r in rewards])
    torch.testing.assert_close(whole, one_by_one, rtol=1e-5, atol=1e-6)


def test_centring_ignores_a_constant(model: Network, obs: torch.Tensor, rewards: torch.Tensor) -> None:
    one = prompt.reward(model, obs, rewards, centre=True)
    other = prompt.reward(model, obs, rewards + 5.0, centre=True)
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


def test_a_constant_reward_points_at_the_mean_feature(model: Network, obs: torch.Tensor) -> None:
    expected = on_sphere(model.backward(obs).detach().mean(0))
    torch.testing.assert_close(
        prompt.reward(model, obs, torch.full((500,), 2.0)), expected, rtol=1e-4, atol=1e-4
    )


def test_goal_is_B(model: Network, obs: torch.Tensor) -> None:
    torch.testing.assert_close(prompt.goal(model, obs[:4]), on_sphere(model.backward(obs[:4]).detach()))


@pytest.mark.parametrize("window", [1, 3, 50])
def test_tracking_looks_ahead_and_is_cut_at_the_end(model: Network, obs: torch.Tensor, window: int) -> None:
    motion = obs[:12]
    B = model.backward(motion[1:]).detach()
    expected = torch.stack([on_sphere(B[t : t + window].mean(0)) for t in range(11)])
    torch.testing.assert_close(prompt.tracking(model, motion, window), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o, r: (o, torch.zeros(500)), "zero on all 500"),
        (lambda o, r: (o, r.index_fill(0, torch.tensor([3]), torch.nan)), "sampled state 3"),
        (lambda o, r: (o, r[:-1]), r"do not fit 500 states"),
        (lambda o, r: (o[:, :2], r), "2 columns, the model was trained on 3"),
        (lambda o, r: (o[:0], r[:0]), "N ≥ 1"),
    ],
    ids=["zero", "nan", "length", "columns", "empty"],
)
def test_bad_input_is_one_clear_sentence(model: Network, obs, rewards, make, words: str) -> None:
    states, values = make(obs, rewards[1].clone())
    with pytest.raises(DataError, match=words):
        prompt.reward(model, states, values)


def test_constant_reward_is_refused_when_centred(model: Network, obs: torch.Tensor) -> None:
    with pytest.raises(DataError, match="constant on all 500"):
        prompt.reward(model, obs, torch.full((500,), 3.0), centre=True)


def test_motion_errors(model: Network, obs: torch.Tensor) -> None:
    with pytest.raises(DataError, match="frames ≥ 2"):
        prompt.tracking(model, obs[:1])
    with pytest.raises(DataError, match="at least one frame"):
        prompt.tracking(model, obs[:5], window=0)
