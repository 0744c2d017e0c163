"""FB-CPR's losses against slow, obvious computations, row by row; its mixture of latents; its memories."""

from typing import Any

import pytest
import torch
from torch import Tensor

from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch
from zol.models.fb_cpr import MODEL, FBCPRConfig, FBCPRLearner, RecentLatents
from zol.models.fused import norm_tanh
from zol.models.layers import unit

N, W, D, A, d = 24, 4, 5, 2, 6
SMALL: dict[str, Any] = {
    "obs_dim": D,
    "action_dim": A,
    "z_dim": d,
    "hidden": 16,
    "backward_hidden": 12,
    "discriminator_hidden": 10,
    "discriminator_layers": 2,
    "window": W,
    "style_weight": 0.3,
    "normalise_obs": True,
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(**changes: Any) -> FBCPRLearner:
    config = FBCPRConfig(**SMALL | changes)
    learner = MODEL.learner(MODEL.network(config, generator(1)).double(), config)
    assert isinstance(learner, FBCPRLearner)
    with torch.no_grad():  # networks whose biases are not zero, targets that are not copies
        for part in (learner.model, learner.target_critic, learner.target_forward, learner.target_backward):
            for parameter in part.parameters():
                noise = torch.randn(parameter.shape, generator=generator(2), dtype=parameter.dtype)
                parameter.add_(0.1 * noise)
    return learner


def batch(seed: int = 3) -> Batch:
    g = generator(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return Batch(
        draw(N, D),
        draw(N, A).tanh(),
        draw(N, D),
        torch.rand(N, generator=g) < 0.3,
        expert_obs=draw(N // W, W, D),
        expert_next_obs=draw(N // W, W, D),
        z=unit(draw(N, d)),
    )


def pessimistic(values: Tensor, penalty: float) -> float:
    """For two members: their mean less penalty · |difference|."""
    return float(values.mean() - penalty * (values[0] - values[1]).abs())


def test_latents_of_windows() -> None:
    learner, b = make(), batch()
    assert b.expert_obs is not None
    assert b.expert_next_obs is not None
    seen, z = learner.expert_pairs(b.expert_obs, b.expert_next_obs, N)
    torch.testing.assert_close(seen(()), learner.model.read(b.expert_obs.reshape(-1, D)))
    for window in range(N // W):
        B = torch.stack([learner.model.backward(b.expert_next_obs[window, w]) for w in range(W)])
        for w in range(W):
            torch.testing.assert_close(z[window * W + w], unit(B.mean(0)))


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_discriminator_loss(penalty: float, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, b = make(gradient_penalty=penalty), batch()
    assert b.expert_obs is not None
    assert b.expert_next_obs is not None
    assert b.z is not None
    share = torch.rand(N, generator=generator(5), dtype=torch.float64)
    monkeypatch.setattr(FBCPRLearner, "_chance", staticmethod(lambda like, g: share))
    expert, expert_z = learner.expert_pairs(b.expert_obs, b.expert_next_obs, N)
    total, slopes = slow_discriminator(learner, b, expert_z, share)
    terms = learner.update_discriminator(learner.view(b.obs), b.z, expert, expert_z, generator())
    assert float(terms["discriminator"]) == pytest.approx(total / N + penalty * slopes / N, rel=1e-6)
    if penalty:
        assert float(terms["slope_penalty"]) == pytest.approx(slopes / N, rel=1e-6)


@torch.no_grad()
def slow_discriminator(
    learner: FBCPRLearner, b: Batch, expert_z: Tensor, share: Tensor
) -> tuple[float, float]:
    """Sums over rows of both entropies, and of squared deviations of the slope from one."""
    assert b.expert_obs is not None
    assert b.z is not None
    model, total, slopes = learner.model, 0.0, 0.0
    rows = b.expert_obs.reshape(-1, D)
    for i in range(N):
        total -= float(torch.log(torch.sigmoid(model.discriminate(rows[i], expert_z[i]))))
        total -= float(torch.log(1 - torch.sigmoid(model.discriminate(b.obs[i], b.z[i]))))
        s = share[i] * model.read(rows[i]) + (1 - share[i]) * model.read(b.obs[i])
        between = torch.cat([s, share[i] * expert_z[i] + (1 - share[i]) * b.z[i]])
        gradient = torch.zeros_like(between)
        for k in range(len(between)):  # central differences
            step = torch.zeros_like(between)
            step[k] = 1e-6
            high, low = (model.discriminator(x[:D], x[D:]) for x in (between + step, between - step))
            gradient[k] = (high - low) / 2e-6
        slopes += float((gradient.norm() - 1) ** 2)
    return total, slopes


def test_the_slope_penalty_has_the_right_gradient() -> None:
    """A gradient through a gradient: the fused layer's second derivative is that of the plain formula."""
    g = generator(4)
    x, w, b = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((7, 9), (9,), (9,)))

    def second(plain: bool) -> list[Tensor]:
        leaves = [v.clone().requires_grad_() for v in (x, w, b)]
        if plain:
            out = torch.tanh(torch.nn.functional.layer_norm(leaves[0], (9,)) * leaves[1] + leaves[2])
        else:
            out = norm_tanh(*leaves)
        (slope,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
        return list(torch.autograd.grad((slope.norm(dim=-1) - 1).square().mean(), leaves))

    for ours, expected in zip(second(False), second(True), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-10)


def test_critic_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, b = make(critic_pessimism=0.4, discount=0.9), batch()
    z = unit(torch.randn(N, d, generator=generator(6), dtype=torch.float64))
    noise = torch.randn(N, A, generator=generator(7), dtype=torch.float64)
    monkeypatch.setattr(FBCPRLearner, "normal", staticmethod(lambda like, g: noise))
    with torch.no_grad():
        total, rewards = slow_critic(learner, b, z, noise)
    terms = learner.update_critic(b, learner.view(b.obs), learner.view(b.next_obs), z, generator())
    assert float(terms["critic"]) == pytest.approx(total / N, rel=1e-9)
    assert float(terms["style_reward"]) == pytest.approx(rewards / N, rel=1e-6)


def slow_critic(learner: FBCPRLearner, b: Batch, z: Tensor, noise: Tensor) -> tuple[float, float]:
    """Sums over rows of the critic's squared errors, halved, and of rewards."""
    model, total, rewards = learner.model, 0.0, 0.0
    for i in range(N):
        reward = float(model.discriminate(b.obs[i], z[i]))
        mean = model.act(b.next_obs[i], z[i])
        action = (mean + (0.2 * noise[i]).clamp(-0.3, 0.3)).clamp(-1 + 1e-6, 1 - 1e-6)
        following = learner.target_critic(model.read(b.next_obs[i]), z[i], action).flatten()
        target = reward + 0.9 * (not b.terminated[i]) * pessimistic(following, 0.4)
        Q = model.critic(b.obs[i], z[i], b.action[i])
        total += 0.5 * sum((float(q) - target) ** 2 for q in Q)
        rewards += reward
    return total, rewards


@pytest.mark.parametrize("scale", [True, False])
def test_actor_loss_and_its_gradient(scale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, b = make(actor_pessimism=0.5, scale_style=scale), batch()
    z = unit(torch.randn(N, d, generator=generator(6), dtype=torch.float64))
    noise = torch.randn(N, A, generator=generator(7), dtype=torch.float64)
    monkeypatch.setattr(FBCPRLearner, "normal", staticmethod(lambda like, g: noise))
    model = learner.model

    def value() -> tuple[Tensor, Tensor]:
        mean = model.act(b.obs, z)
        action = mean + (0.2 * noise).clamp(-0.3, 0.3)
        own, style = (model.forward(b.obs, z, action) * z).sum(-1), model.critic(b.obs, z, action)
        return tuple(x.mean(0) - 0.5 * (x[0] - x[1]).abs() for x in (own, style))  # type: ignore[return-value]

    own, style = value()
    c = own.abs().mean().detach() if scale else 1.0
    expected = -own.mean() - 0.3 * c * style.mean()
    parameters = list(model.actor.parameters())
    gradients = torch.autograd.grad(expected, parameters)
    seen: list[Tensor] = []
    learner.actor_optimiser.optimiser.register_step_pre_hook(
        lambda *_: seen.extend(p.grad.clone() for p in parameters if p.grad is not None)
    )
    terms = learner.update_actor(learner.view(b.obs), z, generator())
    assert float(terms["actor"]) == pytest.approx(float(expected.detach()), rel=1e-9)
    for ours, theirs in zip(seen, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-10)
    assert all(p.grad is None for p in [*model.forward_map.parameters(), *model.critic_map.parameters()])


def test_latents_are_mixed_in_the_shares_that_were_asked_for() -> None:
    learner = make(goal_share=0.2, expert_share=0.6)
    g, rows = generator(8), 20_000
    B = torch.zeros(rows, d, dtype=torch.float64)
    B[:, 0] = torch.arange(1, rows + 1)  # goals point along the first axis, experts along the second
    expert = torch.zeros(rows, d, dtype=torch.float64)
    expert[:, 1] = 1.0
    z = learner.mixed_latents(B, expert, g)
    goal, shown = z[:, 0] == z.norm(dim=1), z[:, 1] == 1.0
    assert float(goal.double().mean()) == pytest.approx(0.2, abs=0.01)
    assert float(shown.double().mean()) == pytest.approx(0.6, abs=0.01)
    rest = z[~goal & ~shown]
    torch.testing.assert_close(rest.norm(dim=1), torch.full((len(rest),), d**0.5, dtype=torch.float64))
    assert float(rest.mean(0).abs().max()) < 0.1


@pytest.mark.parametrize("share", [0.0, 0.8, 1.0])
def test_stored_latents_are_replaced_as_often_as_asked_for(share: float) -> None:
    """The latents that F, critic and actor are trained with are the stored ones or mixed ones."""
    learner, b = make(relabel_share=share), batch()
    used: list[Tensor] = []
    original = learner.update_critic

    def watched(*args: Any) -> dict[str, Tensor]:
        used.append(args[3])
        return original(*args)

    learner.update_critic = watched  # type: ignore[method-assign, assignment]
    for seed in range(20):
        learner.update(b, generator(seed))
    assert b.z is not None
    kept = torch.stack([(z == b.z).all(-1).double() for z in used]).mean()
    assert float(kept) == pytest.approx(1 - share, abs=0.08)
    assert len(learner.recent) == 20 * N


def test_a_critics_target_follows_at_its_own_rate() -> None:
    learner, b = make(critic_target_rate=0.25, target_rate=0.5), batch()
    before = [p.clone() for p in learner.target_critic.parameters()]
    learner.update(b, generator())
    for old, slow, fast in zip(
        before, learner.target_critic.parameters(), learner.model.critic_map.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, 0.75 * old + 0.25 * fast.detach())


def test_recent_latents_are_the_last_ones() -> None:
    recent = RecentLatents(5, 1)
    assert len(recent) == 0
    recent.add(torch.tensor([[0.0], [1.0], [2.0]]))
    assert len(recent) == 3
    recent.add(torch.tensor([[3.0], [4.0], [5.0], [6.0]]))
    assert sorted(recent.stored.flatten().tolist()) == [2, 3, 4, 5, 6]
    recent.add(torch.arange(10.0, 20).unsqueeze(1))
    assert sorted(recent.stored.flatten().tolist()) == [15, 16, 17, 18, 19]


def test_without_style_the_critic_does_not_move_the_actor() -> None:
    """FB-CPR with α = 0 is FB with FB-CPR's latents: the control of its experiments."""
    actors = []
    for scale in (1.0, 50.0):
        learner = make(style_weight=0.0)
        with torch.no_grad():
            for parameter in learner.model.critic_map.parameters():
                parameter.mul_(scale)
        learner.update(batch(), generator())
        actors.append(torch.cat([p.detach().flatten() for p in learner.model.actor.parameters()]))
    assert torch.equal(*actors)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"discrete": True}, "discrete actions have none"),
        ({"actor": "flow", "bc": 0.3}, "holds its actor to demonstrations"),
        ({"n_step": 3}, "bootstraps after every step"),
        ({"goal_share": 0.5, "expert_share": 0.6}, "together exceed one"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FBCPRConfig(**SMALL | change)


def test_plain_transitions_are_refused() -> None:
    b = batch()
    with pytest.raises(DataError, match="train it in a world"):
        make().update(Batch(b.obs, b.action, b.next_obs, b.terminated), generator())
