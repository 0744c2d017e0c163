"""The paper's toy: a point on an annulus, and data that mostly know its middle.

States are positions with 0.25 ≤ ‖s‖ ≤ 1.5. A normalised action a ∈ [−1, 1]² moves the point by
0.1·a; where it would leave the annulus it is put back onto the rim along the radius. Behaviour data are
short random walks that begin with density ∝ exp(−‖s‖²/2σ²), so the outer region, where some rewards
lie, is thinly covered. The paper gives neither σ nor the shapes of its rewards: ours are below.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Field, Layout, States
from zol.tasks import Task
from zol.worlds.base import World

INNER, OUTER = 0.25, 1.5
STEP = 0.1


def _radius(s: States) -> Tensor:
    return s["position"].norm(dim=-1)


def _disc(x: float, y: float, radius: float) -> Task:
    def inside(s: States) -> Tensor:
        offset = s["position"] - s["position"].new_tensor([x, y])
        return (offset.norm(dim=-1) < radius).to(s.obs.dtype)

    return Task("disc", inside)


def _square(s: States) -> Tensor:
    """The outline of a square: a thin frame around the hole."""
    reach = s["position"].abs().amax(-1)
    return ((reach > 0.65) & (reach < 0.85)).to(s.obs.dtype)


def _cross(s: States) -> Tensor:
    """The four arms of a plus sign."""
    x, y = s["position"].abs().unbind(-1)
    return ((torch.minimum(x, y) < 0.12) & (torch.maximum(x, y) < 1.2)).to(s.obs.dtype)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("square", _square, "the frame of a square of half-width 0.75 around the hole"),
        (_disc(-0.8, 0.0, 0.3) + _disc(0.8, 0.0, 0.3)).named("two_circles", "two discs, left and right"),
        Task("cross", _cross, "the arms of a plus sign"),
        Task(
            "outer_ring",
            lambda s: (_radius(s) > 1.35).to(s.obs.dtype),
            "the thinly covered rim",
        ),
        _disc(-0.92, -0.92, 0.2).named("far_disc", "one small disc near the rim, thinly covered"),
    )
}


class Donut(World):
    """The annulus as a batched world, in float32 on the CPU."""

    name = "donut"
    layout = Layout(2, (Field("position", 0, 2, "m", "x and y"),), {"radius": _radius})
    action_dim = 2
    episode_length = 100
    discount = 0.97
    tasks: Mapping[str, Task] = TASKS

    def __init__(self) -> None:
        self._position = torch.zeros(0, 2)

    @property
    def physics(self) -> Tensor:
        """The positions of the running environments, ``[n, 2]``."""
        return self._position

    def reset(self, n: int, generator: torch.Generator) -> States:
        """Uniform over the area of the annulus."""
        u, angle = torch.rand(2, n, generator=generator)
        radius = (INNER**2 + u * (OUTER**2 - INNER**2)).sqrt()
        return self.set_physics(polar(radius, 2 * math.pi * angle))

    def set_physics(self, physics: Tensor) -> States:
        """Put the points at these positions, ``[n, 2]``."""
        self._position = physics.float()
        return States(self._position, self.layout, physics=self._position)

    def step(self, action: Tensor) -> States:
        """Move all points by a tenth of their actions ``[n, 2]``."""
        if action.shape != self._position.shape:
            raise DataError(
                f"actions have shape {tuple(action.shape)}, expected {tuple(self._position.shape)}"
            )
        self._position = onto_annulus(self._position + STEP * action.clamp(-1, 1))
        return States(self._position, self.layout, action=action, physics=self._position)

    def observe(self, physics: Tensor) -> Tensor:
        """An observation is the position itself."""
        return physics.float()


def polar(radius: Tensor, angle: Tensor) -> Tensor:
    """Points ``[n, 2]`` at these radii and angles."""
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)


def onto_annulus(position: Tensor) -> Tensor:
    """The nearest point of the annulus along the radius."""
    radius = position.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    return position * (radius.clamp(INNER, OUTER) / radius)
