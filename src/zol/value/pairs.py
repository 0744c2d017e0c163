"""States and actions as inputs of networks, with what K policies do next: one table for all that learn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol.value.networks import NetworkSettings, Standardised
from zol.value.steps import Steps


@dataclass(frozen=True)
class Pairs:
    """Inputs of K·P networks, in units that suit them.

    Inputs are the columns of state and action in their usual units; without hidden layers they are the
    products of both, s ⊗ a, in which any function is linear where states and actions are one-hot.
    """

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
        products = settings.layers == 0

        def join(obs: Tensor, action: Tensor) -> Tensor:
            obs = obs.expand(*action.shape[:-1], -1)
            if products:
                return (obs.unsqueeze(-1) * action.unsqueeze(-2)).flatten(-2)
            return torch.cat([obs, action], dim=-1)

        here = join(steps.obs, steps.action)
        units = Standardised(here)
        scale = steps.rewards.abs().amax(-1)
        scale = torch.where(scale > 0, scale, 1.0)
        return Pairs(
            units(here),
            units(join(steps.next_obs, steps.next_action)),
            units(join(steps.starts, steps.start_action)),
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
