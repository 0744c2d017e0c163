"""Measure how much of a world some states cover, in numbers that can be compared between sets.

Two numbers are given. The first counts occupied cells. Each observation column is divided by a scale (its
standard deviation under uniformly random actions) and passed through arcsinh; a fixed random projection
takes the result to three dimensions, which are cut into cells of side 0.5. So a cell is half a typical
deviation near the origin, and a constant factor far from it. Counts can be compared between explorers if
they are made of equally many states with the same scale. The second is the spread of every field: the
distance from its 1 % to its 99 % quantile.
"""

from collections.abc import Mapping
from typing import Any

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


def stored_scale(provenance: Mapping[str, Any], columns: int) -> Tensor | None:
    """The scale ``[D]`` that an exploration recorded with its set, if there is one."""
    noted = provenance.get("coverage")
    values = noted.get("scale") if isinstance(noted, Mapping) else None
    if values is None:
        return None
    try:
        scale = torch.tensor(values, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"coverage.scale of this set is {str(values)[:80]}; expected numbers") from error
    if tuple(scale.shape) != (columns,) or not bool((scale.isfinite() & (scale > 0)).all()):
        raise DataError(
            f"coverage.scale of this set is not {columns} finite numbers above 0: {str(values)[:80]}"
        )
    return scale


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
