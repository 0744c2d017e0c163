"""The world contract: where behaviour happens, always on a batch of environments.

A world holds ``n`` environments at once. ``reset`` draws start states from its own distribution,
``step`` moves all of them, ``set_physics`` puts them anywhere (paired comparisons start every method
from the same states). Actions are always normalised to [−1, 1]; the world knows its own scaling.

An episode is ``episode_length`` steps, or fewer if it reaches a terminal state, which the world marks in
``States.terminated``. Environments stay together in one batch: one whose episode is over is stepped on with
the others, whatever it does then, and nobody looks at it (:mod:`zol.worlds.episode`).

A class that derives from :class:`World` gets the defaults of the optional parts.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.tasks import Task

Image = NDArray[np.uint8]
"""A picture ``[height, width, 3]``."""


@runtime_checkable
class World(Protocol):
    """What rollouts, explorers and reports need of a simulator."""

    name: str
    layout: Layout
    action_dim: int
    episode_length: int
    """Steps after which an episode is cut."""
    discount: float
    tasks: Mapping[str, Task]
    threads: int | None = None
    """Threads that the simulator may use, 0 for one per core, settable until the next reset. None: it has
    no threads of its own. A simulator that has some wants torch to use one while environments run."""

    def reset(self, n: int, generator: torch.Generator) -> States:
        """Begin ``n`` episodes in fresh start states, none of which is terminal."""

    def step(self, action: Tensor) -> States:
        """Apply actions ``[n, A]`` in [−1, 1] and return the states that follow, with that action in them.

        ``terminated`` marks those in which an episode is over; None says that no state of this world does.
        Environments that are over take part: what becomes of them has no meaning, but it must be finite.
        """

    def set_physics(self, physics: Tensor) -> States:
        """Put as many environments as there are rows into these simulator states."""

    def observe(self, physics: Tensor) -> Tensor:
        """Observations ``[n, D]`` of simulator states ``[n, P]``, without touching the running ones."""

    @property
    def physics(self) -> Tensor:
        """Simulator states of the running environments, ``[n, P]``."""


class Painter(Protocol):
    """Draws simulator states of one world; used in a ``with`` block, because graphics must be given back."""

    def frame(self, physics: Tensor) -> Image:
        """One simulator state ``[P]`` as a picture."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any: ...


@runtime_checkable
class Marking(Protocol):
    """What a painter adds if it can show where a task wants a body to be."""

    def mark(self, place: tuple[float, ...] | None) -> None:
        """Show this point of the world, in metres, in the frames that follow; None shows none."""


@runtime_checkable
class Drawable(Protocol):
    """What a world adds if it can draw its states: films and pages ask for it."""

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""

    def painter(self, width: int = 320, height: int = 320) -> Painter:
        """Something that draws pictures of this size."""


def find_task(world: World, name: str) -> Task:
    """The world's task of that name; a near miss is suggested."""
    if name not in world.tasks:
        raise DataError(unknown_name(f"task of {world.name}", name, world.tasks))
    return world.tasks[name]
