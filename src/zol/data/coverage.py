"""How much of a world some states cover, in numbers that can be compared between sets.

Cells are counted in a fixed random projection of the observations to three dimensions. Columns are
first divided by a scale, the standard deviation under uniformly random actions, and bent by arcsinh, so
that a cell is half a typical deviation near the origin and a constant factor far from it. Counts of
equally many states with the same scale compare across explorers. The spread of a field is its
1 %-to-99 % range.
"""

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Layout, States

CELL = 0.5
STATES = 20_000  # how many states coverage is measured on: a count of cells grows with the sample


def scale_of(obs: Tensor) -> Tensor:
    """The standard deviation of each column ``[D]``; 1 for a column that does not move."""
    deviation = obs.double().std(dim=0)
    return torch.where(deviation > 1e-9, deviation, torch.ones_like(deviation))


def occupied_cells(obs: Tensor, scale: Tensor) -> int:
    """How many cells the states ``[N, D]`` occupy, with columns measured in units of ``scale [D]``."""
    fixed = torch.Generator().manual_seed(0)
    matrix = torch.randn(obs.shape[1], 3, generator=fixed, dtype=torch.float64)
    projected = (obs.double() / scale).asinh() @ (matrix / matrix.norm(dim=0))
    return len(torch.unique((projected / CELL).floor().to(torch.int64), dim=0))


def spreads(obs: Tensor, layout: Layout) -> dict[str, float]:
    """The 1 %-to-99 % range of every field that observations give (mean over its columns)."""
    states, found = States(obs.double(), layout), {}
    levels = torch.tensor([0.01, 0.99], dtype=torch.float64)
    for name in layout.names:
        try:
            values = states[name].reshape(len(obs), -1)
        except DataError:  # a derived field that needs the simulator state or the action
            continue
        low, high = torch.quantile(values.double(), levels, dim=0)
        found[name] = round(float((high - low).mean()), 4)
    return found


def coverage(obs: Tensor, layout: Layout, scale: Tensor) -> dict[str, object]:
    """Occupied cells and field spreads of states ``[N, D]``."""
    return {"states": len(obs), "cells": occupied_cells(obs, scale), "spread": spreads(obs, layout)}
