"""A straightforward FB update, as public code has it: what our update is compared with.

Same networks, same mathematics, same random numbers as ``FBLearner.update``, written with plain autograd:
N×N matrices with a mask for the off-diagonal entries, Adam and target update as they come, and an actor
loss whose gradients also reach F's weights, where they are thrown away.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.data import Batch
from zol.models.layers import unit


class Dense(nn.Module):
    """P linear layers."""

    def __init__(self, n_in: int, n_out: int, members: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(members, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class DenseNorm(nn.Module):
    """P layer norms."""

    def __init__(self, dim: int, members: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, 1, dim))
        self.bias = nn.Parameter(torch.empty(members, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class Forward(nn.Module):
    """F for P members."""

    def __init__(self, obs: int, action: int, d: int, hidden: int, members: int) -> None:
        super().__init__()
        self.members = members

        def tower(n_in: int) -> nn.Sequential:
            first = Dense(n_in, hidden, members), DenseNorm(hidden, members), nn.Tanh()
            return nn.Sequential(*first, Dense(hidden, hidden // 2, members), nn.ReLU())

        self.embed_z, self.embed_sa = tower(obs + d), tower(obs + action)
        self.Fs = nn.Sequential(Dense(hidden, hidden, members), nn.ReLU(), Dense(hidden, d, members))

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        obs, z, action = (x.expand(self.members, -1, -1) for x in (obs, z, action))
        z_part = self.embed_z(torch.cat([obs, z], dim=-1))
        sa_part = self.embed_sa(torch.cat([obs, action], dim=-1))
        return self.Fs(torch.cat([sa_part, z_part], dim=-1))


class Policy(nn.Module):
    """The mean action of π_z."""

    def __init__(self, obs: int, action: int, d: int, hidden: int) -> None:
        super().__init__()

        def tower(n_in: int) -> nn.Sequential:
            first = nn.Linear(n_in, hidden), nn.LayerNorm(hidden), nn.Tanh()
            return nn.Sequential(*first, nn.Linear(hidden, hidden // 2), nn.ReLU())

        self.embed_z, self.embed_s = tower(obs + d), tower(obs)
        self.policy = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, action))

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        z_part = self.embed_z(torch.cat([obs, z], dim=-1))
        return torch.tanh(self.policy(torch.cat([self.embed_s(obs), z_part], dim=-1)))


class Backward(nn.Module):
    """B, two hidden layers, on the sphere of radius √d or not."""

    def __init__(self, obs: int, d: int, hidden: int, *, sphere: bool = True) -> None:
        super().__init__()
        self.sphere = sphere
        first = nn.Linear(obs, hidden), nn.LayerNorm(hidden), nn.Tanh()
        second = nn.Linear(hidden, hidden), nn.ReLU()
        self.net = nn.Sequential(*first, *second, nn.Linear(hidden, d))

    def forward(self, obs: Tensor) -> Tensor:
        return unit(self.net(obs)) if self.sphere else self.net(obs)


class Reference:
    """The whole update."""

    config: Any  # that of the model's learner
    policy: Any = Policy
    checked: tuple[str, ...] = ("forward_map", "backward_map", "actor")  # whose gradients must be ours

    def __init__(self, config: Any, model: nn.Module) -> None:
        """Begin with the weights of one of our models."""
        c = self.config = config
        self.forward_map = Forward(c.obs_dim, c.action_dim, c.z_dim, c.hidden, c.members)
        self.backward_map = Backward(c.obs_dim, c.z_dim, c.backward_hidden, sphere=c.backward_norm)
        self.actor = self.policy(c.obs_dim, c.action_dim, c.z_dim, c.hidden)
        for name in ("forward_map", "backward_map", "actor"):
            getattr(self, name).load_state_dict(deepcopy(getattr(model, name).state_dict()), assign=True)
        self.target_forward = deepcopy(self.forward_map)
        self.target_backward = deepcopy(self.backward_map)
        self.forward_optimiser = torch.optim.Adam(self.forward_map.parameters(), lr=c.learning_rate)
        self.backward_optimiser = torch.optim.Adam(
            self.backward_map.parameters(), lr=c.backward_learning_rate
        )
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), lr=c.actor_learning_rate)

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        z = self.latents(batch.next_obs, generator)
        self.update_measure(batch, z, generator)
        self.update_actor(batch.obs, z, generator)
        with torch.no_grad():
            self.follow(self.target_forward, self.forward_map)
            self.follow(self.target_backward, self.backward_map)

    @torch.no_grad()
    def latents(self, next_obs: Tensor, generator: torch.Generator) -> Tensor:
        n, c = len(next_obs), self.config
        z = unit(torch.randn(n, c.z_dim, generator=generator).to(next_obs))
        goals = unit(self.backward_map(next_obs[torch.randperm(n, generator=generator)]))
        return torch.where(torch.rand(n, 1, generator=generator) < c.goal_share, goals, z)

    def act(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        mean = self.actor(obs, z)
        noise = self.config.action_std * torch.randn(mean.shape, generator=generator)
        action = mean + noise.clamp(-self.config.action_noise_clip, self.config.action_noise_clip)
        return action + (action.clamp(-1 + 1e-6, 1 - 1e-6) - action).detach()

    def update_measure(self, batch: Batch, z: Tensor, generator: torch.Generator) -> None:
        c = self.config
        with torch.no_grad():
            next_action = self.act(batch.next_obs, z, generator)
            target_F = self.target_forward(batch.next_obs, z, next_action)
            target_M = (target_F @ self.target_backward(batch.next_obs).mT).mean(0)
            gamma = c.discount * (~batch.terminated).to(z.dtype).unsqueeze(-1)
        F = self.forward_map(batch.obs, z, batch.action)
        B = self.backward_map(batch.next_obs)
        off = ~torch.eye(len(B), dtype=torch.bool)
        error = F @ B.mT - gamma * target_M
        loss = sum(0.5 * member[off].pow(2).mean() - member.diagonal().mean() for member in error)
        covariance = B @ B.mT
        orthonormality = 0.5 * covariance[off].pow(2).mean() - covariance.diagonal().mean()
        loss = loss + c.orthonormality * orthonormality
        self.forward_optimiser.zero_grad()
        self.backward_optimiser.zero_grad()
        loss.backward()
        self.forward_optimiser.step()
        self.backward_optimiser.step()

    def update_actor(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> None:
        action = self.act(obs, z, generator)
        Q = (self.forward_map(obs, z, action) * z).sum(-1)
        loss = -Q.mean(0).mean()
        self.actor_optimiser.zero_grad()
        loss.backward()
        self.actor_optimiser.step()

    def follow(self, target: nn.Module, source: nn.Module) -> None:
        rate = self.config.target_rate
        for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
            slow.copy_((1 - rate) * slow + rate * fast)
