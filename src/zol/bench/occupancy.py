r"""Where a policy goes, as a picture that two sources can be compared on: a fixed 2-D grid per world.

A projection reads two named quantities of a state and puts them into cells. The occupancy of a policy is
then a histogram p over cells, and two of them overlap by

    overlap(p, q) = Σ_cells min(p, q) = 1 − TV(p, q),          TV = total variation, ½ Σ |p − q|.

    rollouts     p(cell) ∝ Σ_t γ^t [s_{t+1} ∈ cell]            what is true
    weights      q(cell) ∝ Σ_i max(w_i, 0) [s_i ∈ cell]        what a density ratio w on a sample says
    the sample   w = 1                                         what knowing nothing says

Cells that the sample never visits cannot be reached by any weights: ``Σ p over visited cells`` is the most
that a ratio on this sample can overlap (:func:`supported`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from zol.fields import Layout, States

CELLS = 16  # along each axis


@dataclass(frozen=True)
class Axis:
    """One quantity of a state, cut into cells of equal width; what lies outside counts at the nearest end."""

    name: str
    low: float
    high: float
    read: Callable[[States], Tensor]

    def cell(self, states: States) -> Tensor:
        """The number of the cell of every state, ``[...]``."""
        place = (self.read(states) - self.low) / (self.high - self.low)
        return (place * CELLS).long().clamp(0, CELLS - 1)


@dataclass(frozen=True)
class Projection:
    """The two axes that a world's occupancies are compared on."""

    x: Axis
    y: Axis

    def cells(self, states: States) -> Tensor:
        """The cell of every state, ``[...]``, numbered row by row."""
        return self.y.cell(states) * CELLS + self.x.cell(states)

    def histogram(self, obs: Tensor, layout: Layout, weights: Tensor) -> Tensor:
        """Occupancies ``[K, cells]`` of weights ``[K, N]`` on states ``[N, D]``; rows sum to one, or zero."""
        return gathered(self.cells(States(obs, layout)), weights.clamp_min(0.0))


def gathered(cells: Tensor, weights: Tensor) -> Tensor:
    """Weights ``[K, N]`` summed per cell ``[N]`` and normalised, ``[K, cells]``; all zeros stay zeros."""
    total = torch.zeros(len(weights), CELLS * CELLS, dtype=torch.float64)
    total.index_add_(1, cells, weights.double())
    return total / total.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """Σ min(p, q) of histograms ``[..., cells]``: 1 where they are the same, 0 where they never meet."""
    return torch.minimum(p, q).sum(-1)


def supported(p: Tensor, sample: Tensor) -> Tensor:
    """The share of occupancies ``[..., cells]`` in cells that the sample's histogram ``[cells]`` knows."""
    return torch.where(sample > 0, p, 0.0).sum(-1)


def _coordinate(k: int) -> Callable[[States], Tensor]:
    return lambda states: states["position"][..., k]


def _turned(states: States) -> Tensor:
    """The pitch within ±π; the cheetah's own counts its somersaults."""
    pitch = states["pitch"]
    return torch.atan2(pitch.sin(), pitch.cos())


PROJECTIONS: Mapping[str, Projection] = {
    "donut": Projection(Axis("x", -1.5, 1.5, _coordinate(0)), Axis("y", -1.5, 1.5, _coordinate(1))),
    "point_mass_maze": Projection(Axis("x", -0.3, 0.3, _coordinate(0)), Axis("y", -0.3, 0.3, _coordinate(1))),
    "walker": Projection(
        Axis("speed", -3.0, 5.0, lambda s: s["speed"]),
        Axis("torso height", 0.0, 1.6, lambda s: s["torso_height"]),
    ),
    "cheetah": Projection(
        Axis("speed", -6.0, 6.0, lambda s: s["speed"]), Axis("pitch", -torch.pi, torch.pi, _turned)
    ),
}
"""world → what occupancies are compared on; worlds that are not here are compared by values only"""
