"""States and actions as inputs of networks, with what K policies do next: one table for all that learn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol.value.networks import NetworkSettings, Standardised
from zol.value.steps import Steps


class Inputs:
    """The columns of state and action in their usual units.

    Without hidden layers they are the products of both, s ⊗ a, in which any function is linear where states
    and actions are one-hot.
    """

    def __init__(self, steps: Steps, settings: NetworkSettings) -> None:
        self.products = settings.layers == 0
        self.units = Standardised(self._join(steps.obs, steps.action))

    def __call__(self, obs: Tensor, action: Tensor) -> Tensor:
        """Observations ``[…, D]`` with actions ``[…, A]``, ``[…, X]``."""
        return self.units(self._join(obs, action))

    def _join(self, obs: Tensor, action: Tensor) -> Tensor:
        obs = obs.expand(*action.shape[:-1], -1)
        if self.products:
            return (obs.unsqueeze(-1) * action.unsqueeze(-2)).flatten(-2)
        return torch.cat([obs, action], dim=-1)


def own_scale(rewards: Tensor) -> Tensor:
    """The largest reward of every task by size, ``[T]``: what networks measure rewards ``[T, N]`` in."""
    scale = rewards.abs().amax(-1)
    return torch.where(scale > 0, scale, 1.0)


@dataclass(frozen=True)
class Pairs:
    """Inputs of K·P networks, in units that suit them."""

    here: Tensor  # (s, a), [N, X]
    following: Tensor  # (s', π_z(s')), [K, N, X]
    start: Tensor  # (s0, π_z(s0)), [K, S, X]
    discount: Tensor  # γ', [N]
    rewards: Tensor  # in units of their scale, [T, N]
    scale: Tensor  # [T]
    members: int  # P
    gamma: float

    @staticmethod
    def of(steps: Steps, settings: NetworkSettings) -> "Pairs":
        """The transitions under K policies."""
        inputs, scale = Inputs(steps, settings), own_scale(steps.rewards)
        return Pairs(
            inputs(steps.obs, steps.action),
            inputs(steps.next_obs, steps.next_action),
            inputs(steps.starts, steps.start_action),
            steps.discount,
            steps.rewards / scale.unsqueeze(-1),
            scale,
            settings.members,
            steps.gamma,
        )

    @property
    def problems(self) -> int:
        """K."""
        return len(self.following)

    def draw(self, batch: int, generator: torch.Generator) -> Tensor:
        """Some transitions, ``[n]``."""
        return torch.randint(len(self.here), (min(batch, len(self.here)),), generator=generator)

    def after(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """(s', π_z(s')) of some transitions for all networks, ``[K·P, n, X]``."""
        return self.following[:, rows].repeat_interleave(self.members, dim=0)

    def starts(self) -> Tensor:
        """(s0, π_z(s0)) for all networks, ``[K·P, S, X]``."""
        return self.start.repeat_interleave(self.members, dim=0)
