"""The world contract: where behaviour happens, always on a batch of environments.

A world holds ``n`` environments at once. ``reset`` draws start states from its own distribution,
``step`` moves all of them, ``set_physics`` puts them anywhere (paired comparisons start every method
from the same states). Actions are always normalised to [−1, 1]; the world knows its own scaling.

None of the worlds here ends an episode early: an episode is ``episode_length`` steps.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.tasks import Task


@runtime_checkable
class World(Protocol):
    """What rollouts, explorers and reports need of a simulator."""

    name: str
    layout: Layout
    action_dim: int
    episode_length: int
    discount: float
    tasks: Mapping[str, Task]

    def reset(self, n: int, generator: torch.Generator) -> States:
        """``n`` environments in fresh start states."""

    def step(self, action: Tensor) -> States:
        """Apply actions ``[n, A]`` in [−1, 1]; the states that follow, with that action in them."""

    def set_physics(self, physics: Tensor) -> States:
        """Put as many environments as there are rows into these simulator states."""

    def observe(self, physics: Tensor) -> Tensor:
        """Observations ``[n, D]`` of simulator states ``[n, P]``, without touching the running ones."""

    @property
    def physics(self) -> Tensor:
        """Simulator states of the running environments, ``[n, P]``."""


def find_task(world: World, name: str) -> Task:
    """The world's task of that name; a near miss is suggested."""
    if name not in world.tasks:
        raise DataError(unknown_name(f"task of {world.name}", name, world.tasks))
    return world.tasks[name]
