"""The soft indicator from which the control suites build their rewards."""

import math
from typing import Literal

import torch
from torch import Tensor


def tolerance(
    x: Tensor,
    low: float,
    high: float = math.inf,
    *,
    margin: float = 0.0,
    shape: Literal["gaussian", "linear", "quadratic"] = "gaussian",
    at_margin: float = 0.1,
) -> Tensor:
    """1 where ``low ≤ x ≤ high``, falling to ``at_margin`` at distance ``margin`` outside.

    With d = distance to the nearest bound / margin and v = ``at_margin``:
    gaussian exp(ln(v)·d²); linear max(0, 1 − (1−v)·d); quadratic max(0, 1 − (1−v)·d²).
    ``margin=0`` is the plain indicator.
    """
    if not low <= high:
        raise ValueError(f"tolerance needs low ≤ high, got [{low}, {high}]")
    if not margin >= 0.0:
        raise ValueError(f"tolerance needs margin ≥ 0, got {margin}")
    if margin == 0.0:
        return ((x >= low) & (x <= high)).to(x.dtype)
    d = torch.maximum(low - x, x - high).clamp_min(0.0) / margin  # an open bound is −inf here, and loses
    if shape == "gaussian":
        return torch.exp(math.log(at_margin) * d.square())
    drop = (1.0 - at_margin) * (d if shape == "linear" else d.square())
    return (1.0 - drop).clamp_min(0.0)
