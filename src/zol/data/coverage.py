"""How much of a world some states cover, in numbers that can be compared between sets.

Cells are counted in a fixed random projection of the observations to three dimensions, after arcsinh
(a metre counts near the origin, a factor far from it). The projection depends on nothing but the number
of columns, so counts of equally many states compare across explorers. The spread of a field is its
1 %-to-99 % range.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from zol.errors import DataError
from zol.tasks import Layout, States

CELL = 0.5
STATES = 20_000  # how many states coverage is measured on: a count of cells grows with the sample


def occupied_cells(obs: Tensor, layout: Layout | None = None, fields: Sequence[str] = ()) -> int:
    """Cells of width 0.5 that the states ``[N, D]`` occupy, in a random or a named projection."""
    if fields:
        if layout is None:
            raise DataError("named fields need the layout of the world")
        states = States(obs, layout)
        projected = torch.cat([states[name].reshape(len(obs), -1) for name in fields], 1).asinh()
    else:
        fixed = torch.Generator().manual_seed(0)
        matrix = torch.randn(obs.shape[1], 3, generator=fixed, dtype=torch.float64)
        projected = obs.double().asinh() @ (matrix / matrix.norm(dim=0))
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


def coverage(obs: Tensor, layout: Layout) -> dict[str, object]:
    """Occupied cells and field spreads of states ``[N, D]``."""
    return {"states": len(obs), "cells": occupied_cells(obs), "spread": spreads(obs, layout)}
