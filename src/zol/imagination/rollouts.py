r"""Rollouts in a learned dynamics model: what a latent would earn, without touching the world.

Every member k of the ensemble plays the same latents from the same start states,

    a_t = π_z(s_t),   x_{t+1} = f_k(x_t, a_t),   r_t = r(x_{t+1}, a_t),      t < horizon,

and the tasks' own formulas score what it sees, all tasks on every rollout. With a short horizon the model's
own value can stand for the rest of the episode,

    V_k(z) = (1 − γ) [ Σ_t γ^t r_t + γ^n F(s_n, π_z(s_n), z)ᵀ E[B r] ]

(``bootstrap``); otherwise V_k is the plain mean of r_t, the scale of an episode's return per step.
The spread between members on the same starts is the doubt of the ensemble.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zol.fields import Layout
from zol.imagination.dynamics import Dynamics
from zol.imagination.learned_world import rewards
from zol.models.base import Model
from zol.tasks import Task

REWARDS_AT_ONCE = 10  # steps whose rewards are computed in one call
ROWS_AT_ONCE = 8192  # imagined environments in one batch: larger ones only miss the caches


@dataclass(frozen=True)
class Imagination:
    """Where latents are rehearsed: the dynamics, the start states and the tasks that score."""

    model: Model
    dynamics: Dynamics
    layout: Layout
    tasks: Sequence[Task]
    starts: Tensor  # [S, X]
    horizon: int
    noise: float = 0.0  # in units of the held-out one-step error
    moments: Tensor | None = None  # E[B r], [T, d]; given, rollouts end with the model's own value

    @torch.no_grad()
    def values(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """V of latents ``[K, d]`` for every member, task and start, ``[K, P, T, S]``."""
        at_once = max(1, ROWS_AT_ONCE // (self.dynamics.members * len(self.starts)))
        return torch.cat([self._play(part, generator) for part in z.split(at_once)])

    def _play(self, z: Tensor, generator: torch.Generator) -> Tensor:
        members, (starts, width) = self.dynamics.members, self.starts.shape
        shape = (members, len(z), starts)
        states = self.starts.expand(members, len(z), starts, width).flatten(1, 2)  # [P, K·S, X]
        latents = z.unsqueeze(1)
        gamma = self.model.discount if self.moments is not None else 1.0
        total = torch.zeros(len(self.tasks), *shape)
        recent: list[tuple[Tensor, Tensor]] = []
        for t in range(self.horizon):
            action = self._act(states, latents, shape).clamp(-1.0, 1.0)
            # The same noise for every latent: differences between latents are then paired.
            noise = torch.randn(members, 1, starts, width, generator=generator) if self.noise else None
            states = self.dynamics(
                states,
                action,
                None if noise is None else (self.noise * noise).expand(*shape, width).flatten(1, 2),
            )
            recent.append((states, action))
            if len(recent) == REWARDS_AT_ONCE or t == self.horizon - 1:
                r = self._rewards(recent)  # [T, steps, P, K·S]
                times = torch.arange(t + 1 - len(recent), t + 1)
                total += torch.einsum("k,tkpn->tpn", gamma**times, r).reshape(total.shape)
                recent.clear()
        if self.moments is None:
            value = total / self.horizon
        else:
            action = self._act(states, latents, shape).reshape(*shape, -1)
            F = self.model.forward(self._observed(states).reshape(*shape, -1), latents, action).mean(0)
            rest = torch.einsum("pksd,td->tpks", F, self.moments)
            value = (1 - gamma) * (total + gamma**self.horizon * rest)
        return value.permute(2, 1, 0, 3)  # [K, P, T, S]

    def _observed(self, states: Tensor) -> Tensor:
        return states[..., : self.dynamics.config.obs_dim]

    def _act(self, states: Tensor, latents: Tensor, shape: tuple[int, int, int]) -> Tensor:
        return self.model.act(self._observed(states).reshape(*shape, -1), latents).flatten(1, 2)

    def _rewards(self, recent: list[tuple[Tensor, Tensor]]) -> Tensor:
        states, actions = (torch.stack(list(column)) for column in zip(*recent, strict=True))
        return rewards(self.dynamics, self.tasks, self.layout, states, actions)
