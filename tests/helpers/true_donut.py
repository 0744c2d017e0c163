"""A learned world of the donut that has learned everything."""

import torch
from torch import Tensor, nn

from zol.imagination.dynamics import DynamicsConfig
from zol.imagination.learned_world import LearnedWorld
from zol.worlds import make


class TrueDonut(nn.Module):
    """The donut's own step in the form of a dynamics ensemble."""

    def __init__(self, members: int = 2) -> None:
        super().__init__()
        self.config = DynamicsConfig(obs_dim=2, action_dim=2, members=members)
        self.members, self.world = members, make("donut")
        self.error = torch.zeros(2)  # of single steps

    def forward(self, states: Tensor, actions: Tensor, noise: Tensor | None = None) -> Tensor:
        self.world.set_physics(states.reshape(-1, 2))
        return self.world.step(actions.reshape(-1, 2)).obs.to(states.dtype).reshape(states.shape)


def true_world(dynamics: nn.Module, starts: int = 40, stretches: int = 12, length: int = 30) -> LearnedWorld:
    """Start states and real stretches of random actions beside these dynamics."""
    world, generator = make("donut"), torch.Generator().manual_seed(7)
    first = world.reset(starts, generator).obs.float()
    seen = [world.reset(stretches, generator).obs.float()]
    actions = 2 * torch.rand(stretches, length, 2, generator=generator) - 1
    for action in actions.unbind(1):
        seen.append(world.step(action).obs.float())
    return LearnedWorld(dynamics, first, torch.stack(seen, 1), actions)  # type: ignore[arg-type]
