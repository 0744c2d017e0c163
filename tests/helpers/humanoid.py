"""A stand-in for HumEnv: its name, sizes and task names, without its body, which is not ours to ship."""

from collections.abc import Mapping

import torch
from torch import Tensor

from zol.fields import States
from zol.tasks import Task, humenv
from zol.worlds.base import World

Q, V = 76, 75
TASKS = ("move-ego-0-0", "sitonground", "crawl-0.4-0-d")


def _task(name: str, column: int) -> Task:
    return Task(name, lambda s: torch.sigmoid(s.need_physics()[..., column]))


class StandIn(World):
    """Positions that actions push; 358 observations are a fixed mixture of 76 positions and 75 velocities."""

    name = "humenv"
    layout = humenv.LAYOUT
    action_dim = humenv.ACTIONS
    episode_length = 12
    discount = 0.98
    tasks: Mapping[str, Task] = {name: _task(name, column) for column, name in enumerate(TASKS)}

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self._pose = 0.1 * torch.randn(Q, humenv.POSE, generator=g, dtype=torch.float64)
        rest = humenv.LAYOUT.obs_dim - humenv.POSE
        self._speed = 0.1 * torch.randn(V, rest, generator=g, dtype=torch.float64)
        self._state = torch.zeros(0, Q + V, dtype=torch.float64)

    @property
    def physics(self) -> Tensor:
        return self._state.clone()

    def reset(self, n: int, generator: torch.Generator) -> States:
        return self.set_physics(torch.randn(n, Q + V, generator=generator, dtype=torch.float64))

    def set_physics(self, physics: Tensor) -> States:
        self._state = physics.double().clone()
        return self._states(None)

    def step(self, action: Tensor) -> States:
        applied = action.detach().double().clamp(-1, 1)
        self._state[:, Q : Q + self.action_dim] = (
            0.9 * self._state[:, Q : Q + self.action_dim] + 0.3 * applied
        )
        self._state[:, : self.action_dim] += 0.1 * self._state[:, Q : Q + self.action_dim]
        return self._states(applied)

    def observe(self, physics: Tensor) -> Tensor:
        return torch.cat([physics[:, :Q] @ self._pose, physics[:, Q:] @ self._speed], 1)

    def _states(self, action: Tensor | None) -> States:
        return States(self.observe(self._state), self.layout, action=action, physics=self.physics)
