r"""Rollouts in a learned world: what a latent would earn there, without touching the environment.

Every member k of the dynamics ensemble plays the same latents from the same start states,

    a_t = π_z(s_t),   x_{t+1} = f_k(x_t, a_t),   r_t = r(x_{t+1}, a_t),      t < horizon,

and the tasks' own formulas score the imagined states; one rollout is scored by all tasks. The value of a
latent is the plain mean of r_t, which is the scale of an episode's return per step. With ``bootstrap`` the
rewards are discounted, and the model's own value stands for what follows a horizon of n steps:

    V_k(z) = (1 − γ) [ Σ_{t<n} γ^t r_t + γ^n Q(s_n, π_z(s_n)) ],      Q = F(s_n, π_z(s_n), z)ᵀ E[B r]

where :mod:`zol.measure` computes Q for models of other conventions. The standard deviation between members on
the same start states shows how much the ensemble disagrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zol import measure
from zol.common.progress import Ticker
from zol.fields import Layout
from zol.imagination.dynamics import Dynamics
from zol.imagination.learned_world import rewards
from zol.models.base import Model
from zol.prompt import RewardMoments
from zol.tasks import Task

REWARDS_AT_ONCE = 10  # steps whose rewards are computed in one call
ROWS_AT_ONCE = 8192  # imagined environments in one batch: larger ones only miss the caches


@dataclass(frozen=True)
class ImaginedRollouts:
    """How latents are played: in which dynamics, from which start states, how long, scored by which tasks."""

    model: Model
    dynamics: Dynamics
    layout: Layout
    tasks: Sequence[Task]
    starts: Tensor  # full states (observation and hidden fields), [S, X]
    horizon: int  # n, steps of a rollout
    noise: float = 0.0  # added to imagined states, in units of the held-out one-step error
    bootstrap: RewardMoments | None = None  # of the tasks; with it rollouts end with the model's own value
    ticker: Ticker | None = None  # told of every step of every latent

    @torch.no_grad()
    def values(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """V of latents ``[K, d]`` for every member, task and start state, ``[K, P, T, S]``."""
        at_once = max(1, ROWS_AT_ONCE // (self.dynamics.members * len(self.starts)))
        return torch.cat([self.together(part, generator) for part in z.split(at_once)])

    @torch.no_grad()
    def together(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """The same in one batch, for policies that act for all latents at once."""
        members, (starts, width) = self.dynamics.members, self.starts.shape
        shape = (members, len(z), starts)
        states = self.starts.expand(members, len(z), starts, width).flatten(1, 2)  # [P, K·S, X]
        latents = z.unsqueeze(1)
        gamma = 1.0 if self.bootstrap is None else self.model.discount
        total = torch.zeros(len(self.tasks), *shape, dtype=self.starts.dtype)
        recent: list[tuple[Tensor, Tensor]] = []
        for t in range(self.horizon):
            action = self._act(states, latents, shape).clamp(-1.0, 1.0)
            states = self.dynamics(states, action, self._noise(shape, generator))
            recent.append((states, action))
            if len(recent) == REWARDS_AT_ONCE or t == self.horizon - 1:
                r = self._rewards(recent)  # [T, steps, P, K·S]
                times = torch.arange(t + 1 - len(recent), t + 1, dtype=r.dtype)
                total += torch.einsum("k,tkpn->tpn", gamma**times, r).reshape(total.shape)
                if self.ticker is not None:
                    self.ticker.advance(len(recent) * len(z))
                recent.clear()
        if self.bootstrap is None:
            value = total / self.horizon
        else:
            last_reward = r[:, -1].reshape(total.shape)
            rest = self._own_value(self.bootstrap, states, latents, shape, last_reward)
            value = (1 - gamma) * (total + gamma**self.horizon * rest)
        return value.permute(2, 1, 0, 3)  # [K, P, T, S]

    def _own_value(
        self, rewards: RewardMoments, states: Tensor, z: Tensor, shape: tuple[int, int, int], here: Tensor
    ) -> Tensor:
        """Q(s, π_z(s)) by the mean of F's ensemble, ``[T, P, K, S]``; ``here`` is r(s) in the same shape."""
        action = self._act(states, z, shape).reshape(*shape, -1)
        F = self.model.forward(self._observed(states).reshape(*shape, -1), z, action).mean(0)
        product = torch.einsum("pksd,td->tpks", F, rewards.moment)
        mean = rewards.mean.reshape(-1, 1, 1, 1)
        return measure.discounted_return(self.model, product, mean, here, normalised=False)

    def _noise(self, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor | None:
        """``[P, K·S, X]``, the same for every latent: differences between latents are then paired."""
        if not self.noise:
            return None
        members, _, starts = shape
        width, dtype = self.starts.shape[-1], self.starts.dtype
        drawn = torch.randn(members, 1, starts, width, generator=generator, dtype=dtype)
        return (self.noise * drawn).expand(*shape, width).flatten(1, 2)

    def _observed(self, states: Tensor) -> Tensor:
        return states[..., : self.dynamics.config.obs_dim]

    def _act(self, states: Tensor, latents: Tensor, shape: tuple[int, int, int]) -> Tensor:
        return self.model.act(self._observed(states).reshape(*shape, -1), latents).flatten(1, 2)

    def _rewards(self, recent: list[tuple[Tensor, Tensor]]) -> Tensor:
        states, actions = (torch.stack(list(column)) for column in zip(*recent, strict=True))
        return rewards(self.dynamics, self.tasks, self.layout, states, actions)
