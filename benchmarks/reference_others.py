"""Straightforward updates of BYOL-γ, flow actors, FB-CPR and the reward prior: what ours are compared with.

As in ``benchmarks.reference_family``: same networks, mathematics and random numbers as our learners, in plain
autograd, with every quantity computed where it is needed.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.reference_family import Features, squared_off_diagonal
from benchmarks.reference_update import Forward, Policy, Reference
from zol.data import Batch
from zol.models.layers import unit
from zol.models.learner import NetworkLearner
from zol.models.prior_features import FEATURE_ROWS


class ByolGamma(Features):
    """Successor features of what predicts itself later."""

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model, learner)
        c = config
        self.predictor = Policy(c.z_dim, c.z_dim, c.action_dim, c.hidden)
        self.predictor.load_state_dict(deepcopy(learner.features.predictor.state_dict()), assign=True)  # type: ignore[attr-defined]
        self.predictor_optimiser = torch.optim.Adam(self.predictor.parameters(), lr=c.learning_rate)
        self.slow = deepcopy(self.backward_map)

    def feature_loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        phi = self.backward_map(batch.obs)
        with torch.no_grad():
            later = self.slow(batch.future_obs)
        net = self.predictor
        towers = [net.embed_s(phi), net.embed_z(torch.cat([phi, batch.action], dim=-1))]
        predicted = net.policy(torch.cat(towers, dim=-1))
        off, on = squared_off_diagonal(phi)
        prediction = (predicted - later).pow(2).sum(-1).mean()
        return prediction + self.config.orthonormality * (0.5 * off - on)

    def step(self, loss: Tensor) -> None:
        self.predictor_optimiser.zero_grad()
        super().step(loss)
        self.predictor_optimiser.step()

    def follow_features(self) -> None:
        rate = self.config.feature_target_rate
        for p, q in zip(self.slow.parameters(), self.backward_map.parameters(), strict=True):
            p.copy_((1 - rate) * p + rate * q)


class NoisyPolicy(Policy):
    """π_z(s, ε)."""

    def __init__(self, obs: int, action: int, d: int, hidden: int) -> None:
        super().__init__(obs + action, action, d, hidden)

    def forward(self, obs: Tensor, z: Tensor, noise: Tensor) -> Tensor:  # type: ignore[override]
        z_part = self.embed_z(torch.cat([obs, z, noise], dim=-1))
        s_part = self.embed_s(torch.cat([obs, noise], dim=-1))
        return torch.tanh(self.policy(torch.cat([s_part, z_part], dim=-1)))


class Field(nn.Module):
    """v(s, x, t)."""

    def __init__(self, obs: int, action: int, hidden: int, layers: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Linear(obs + action + 1, hidden), nn.GELU()]
        for _ in range(layers - 1):
            parts += [nn.Linear(hidden, hidden), nn.GELU()]
        self.net = nn.Sequential(*parts, nn.Linear(hidden, action))

    def forward(self, obs: Tensor, x: Tensor, t: Tensor) -> Tensor:
        return self.net(torch.cat([obs, x, t], dim=-1))


class Flow(Reference):
    """FB whose actor is a one-step flow."""

    checked = ("forward_map", "backward_map", "actor", "vector_field")
    policy = NoisyPolicy

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model)
        c = config
        self.vector_field = Field(c.obs_dim, c.action_dim, c.flow_hidden, c.flow_layers)
        self.vector_field.load_state_dict(deepcopy(model.vector_field.state_dict()), assign=True)  # type: ignore[union-attr]
        self.vector_field_optimiser = torch.optim.Adam(
            self.vector_field.parameters(), lr=c.flow_learning_rate
        )

    def noise(self, like: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(len(like), self.config.action_dim, generator=generator).to(like)

    def act(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        return self.actor(obs, z, self.noise(z, generator))

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        self.data = batch.action
        super().update(batch, generator)

    def update_actor(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> None:
        c, data = self.config, self.data
        start = self.noise(z, generator)
        t = torch.rand(len(z), 1, generator=generator).to(z)
        velocity = self.vector_field(obs, (1 - t) * start + t * data, t)
        matching = (velocity - (data - start)).pow(2).mean()
        noise = self.noise(z, generator)
        action = self.actor(obs, z, noise)
        with torch.no_grad():
            x = noise
            for k in range(c.flow_steps):
                x = x + self.vector_field(obs, x, torch.full_like(t, k / c.flow_steps)) / c.flow_steps
            x = x.clamp(-1, 1)
        Q = (self.forward_map(obs, z, action) * z).sum(-1)
        loss = -Q.mean() / Q.detach().abs().mean() + c.bc * (action - x).pow(2).mean() + matching
        self.actor_optimiser.zero_grad()
        self.vector_field_optimiser.zero_grad()
        loss.backward()
        self.actor_optimiser.step()
        self.vector_field_optimiser.step()


class Judge(nn.Module):
    """D(s, z)."""

    def __init__(self, obs: int, d: int, hidden: int, layers: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Linear(d + obs, hidden), nn.LayerNorm(hidden), nn.Tanh()]
        for _ in range(layers - 1):
            parts += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.trunk = nn.Sequential(*parts, nn.Linear(hidden, 1))

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        return self.trunk(torch.cat([z, obs], dim=-1)).squeeze(-1)


class CPR(Reference):
    """FB-CPR."""

    checked = ("forward_map", "backward_map", "actor", "critic_map", "discriminator")

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model)
        c = config
        self.critic_map = Forward(c.obs_dim, c.action_dim, c.z_dim, c.hidden, c.members)
        last = self.critic_map.Fs[-1]
        last.weight = nn.Parameter(torch.empty(c.members, c.hidden, 1))
        last.bias = nn.Parameter(torch.empty(c.members, 1, 1))
        self.discriminator = Judge(c.obs_dim, c.z_dim, c.discriminator_hidden, c.discriminator_layers)
        for name in ("critic_map", "discriminator"):
            getattr(self, name).load_state_dict(deepcopy(getattr(model, name).state_dict()), assign=True)
        self.target_critic = deepcopy(self.critic_map)
        self.critic_optimiser = torch.optim.Adam(self.critic_map.parameters(), lr=c.critic_learning_rate)
        self.discriminator_optimiser = torch.optim.Adam(
            self.discriminator.parameters(), lr=c.discriminator_learning_rate
        )

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        c, n = self.config, len(batch)
        assert batch.expert_obs is not None
        assert batch.expert_next_obs is not None
        assert batch.z is not None
        with torch.no_grad():
            window = self.backward_map(batch.expert_next_obs)
            expert_z = unit(window.mean(1, keepdim=True)).expand_as(window).flatten(0, 1)[:n]
        self.update_discriminator(batch, batch.expert_obs.flatten(0, 1)[:n], expert_z, generator)
        with torch.no_grad():
            goals = unit(self.backward_map(batch.next_obs))
            uniform = unit(torch.randn(n, c.z_dim, generator=generator).to(goals))
            goals = goals[torch.randperm(n, generator=generator)]
            experts = expert_z[torch.randperm(n, generator=generator)]
            kind = torch.rand(n, generator=generator).unsqueeze(-1)
            mixed = torch.where(kind < c.goal_share + c.expert_share, experts, uniform)
            mixed = torch.where(kind < c.goal_share, goals, mixed)
            again = torch.rand(n, generator=generator).unsqueeze(-1) < c.relabel_share
            z = torch.where(again, mixed, batch.z)
        self.update_measure(batch, z, generator)
        self.update_critic(batch, z, generator)
        self.update_actor(batch.obs, z, generator)
        with torch.no_grad():
            self.follow(self.target_forward, self.forward_map)
            self.follow(self.target_backward, self.backward_map)
            for p, q in zip(self.target_critic.parameters(), self.critic_map.parameters(), strict=True):
                p.copy_((1 - c.critic_target_rate) * p + c.critic_target_rate * q)

    def update_discriminator(
        self, batch: Batch, expert: Tensor, expert_z: Tensor, generator: torch.Generator
    ) -> None:
        D, z = self.discriminator, batch.z
        assert z is not None
        loss = functional.softplus(-D(expert, expert_z)) + functional.softplus(D(batch.obs, z))
        share = torch.rand(len(z), generator=generator).to(z).unsqueeze(-1)
        seen = (share * expert + (1 - share) * batch.obs).requires_grad_()
        between = (share * expert_z + (1 - share) * z).requires_grad_()
        slopes = torch.autograd.grad(D(seen, between).sum(), (seen, between), create_graph=True)
        penalty = (torch.cat(slopes, -1).norm(dim=-1) - 1).pow(2).mean()
        self.discriminator_optimiser.zero_grad()
        (loss.mean() + self.config.gradient_penalty * penalty).backward()
        self.discriminator_optimiser.step()

    def update_critic(self, batch: Batch, z: Tensor, generator: torch.Generator) -> None:
        c = self.config
        with torch.no_grad():
            p = torch.sigmoid(self.discriminator(batch.obs, z)).clamp(1e-7, 1 - 1e-7)
            reward = torch.log(p) - torch.log1p(-p)
            action = self.act(batch.next_obs, z, generator)
            following = self.target_critic(batch.next_obs, z, action).squeeze(-1)
            apart = (following[0] - following[1]).abs()
            gamma = c.discount * (~batch.terminated).to(z.dtype)
            target = reward + gamma * (following.mean(0) - c.critic_pessimism * apart)
        Q = self.critic_map(batch.obs, z, batch.action).squeeze(-1)
        loss = sum(0.5 * (member - target).pow(2).mean() for member in Q)
        self.critic_optimiser.zero_grad()
        loss.backward()
        self.critic_optimiser.step()

    def update_actor(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> None:
        c = self.config
        action = self.act(obs, z, generator)
        own = (self.forward_map(obs, z, action) * z).sum(-1)
        style = self.critic_map(obs, z, action).squeeze(-1)
        own, style = (
            v.mean(0) - c.actor_pessimism * (v[0] - v[1]).abs() if c.actor_pessimism else v.mean(0)
            for v in (own, style)
        )
        size = own.abs().mean().detach() if c.scale_style else 1.0
        self.actor_optimiser.zero_grad()
        (-own.mean() - c.style_weight * size * style.mean()).backward()
        self.actor_optimiser.step()


class Prior(Reference):
    """Successor features of a prior over rewards; the prior itself is the learner's."""

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model)
        self.learner: Any = learner
        self.mean, self.batches, self.updates = torch.zeros(config.z_dim), 0, 0

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        c, path, n = self.config, batch.path_obs, batch.path_length
        assert path is not None
        assert n is not None
        assert batch.z is not None
        some, z = batch.next_obs[::FEATURE_ROWS], batch.z
        phi = self.backward_map(some)
        self.backward_optimiser.zero_grad()
        (phi - self.learner.wanted_features(some)).pow(2).sum(-1).mean().backward()
        self.backward_optimiser.step()
        self.batches += 1
        rate = max(c.covariance_rate, 1 / self.batches)
        self.mean = (1 - rate) * self.mean.to(phi) + rate * phi.detach().mean(0)
        with torch.no_grad():
            total = torch.zeros_like(z)
            for k in range(c.n_step):
                step = self.backward_map(path[:, k]) - self.mean
                total = total + c.discount**k * step * (k < n).to(z).unsqueeze(-1)
            last = path[torch.arange(len(n)), n - 1]
            action = self.act(last, z, generator)
            following = self.target_forward(last, z, action)
            gamma = (c.discount**n * ~batch.terminated).to(z)
            target = total + gamma.unsqueeze(-1) * following.mean(0)
            values = (following * z).sum(-1)
            worst = values.mean(0) - c.pessimism * (values[0] - values[1]).abs()
            target_q = (total * z).sum(-1) + gamma * worst
        loss = torch.zeros(())
        for psi in self.forward_map(batch.obs, z, batch.action):
            vector = 0.5 * (psi - target).pow(2).sum(-1).mean()
            loss = loss + vector + c.q_loss * 0.5 * ((psi * z).sum(-1) - target_q).pow(2).mean()
        self.forward_optimiser.zero_grad()
        loss.backward()
        self.forward_optimiser.step()
        if self.updates % c.actor_every == 0:
            self.update_actor(batch.obs, z, generator)
        self.updates += 1
        with torch.no_grad():
            self.follow(self.target_forward, self.forward_map)


CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "successor_features (byol_gamma)": ("successor_features", {"features": "byol_gamma"}, ByolGamma),
    "fb with a flow actor": ("fb", {"actor": "flow", "bc": 0.3}, Flow),
    "fb_cpr": ("fb_cpr", {}, CPR),
    "prior_features": ("prior_features", {"quantities": ("obs:0", "obs:3"), "rewards": 64}, Prior),
}
"""What is timed: its name, its entry in ``MODELS``, settings beside the defaults, and the reference."""
