r"""Sines and cosines of observations beside the observations themselves.

A small network is smooth: across a thin wall it gives both sides much the same value, and a policy that
climbs it pushes against the wall instead of walking around it. With

    x  →  [x, sin(ω_j x), cos(ω_j x)],      ω_j = 2^j π/2,   j < k,   x in standard deviations,

periods are 4, 2, 1, ½ … standard deviations, and what changes within a fraction of one is soon fitted.
"""

import math

import torch
from torch import Tensor, nn


class FourierFeatures(nn.Module):
    """``[..., D] → [..., D (1 + 2k)]``."""

    def __init__(self, frequencies: int) -> None:
        super().__init__()
        self.frequencies = frequencies

    def forward(self, x: Tensor) -> Tensor:
        """The columns, then all sines, then all cosines."""
        if not self.frequencies:
            return x
        rates = 0.5 * math.pi * 2.0 ** torch.arange(self.frequencies, dtype=x.dtype, device=x.device)
        turned = (x.unsqueeze(-1) * rates).flatten(-2)
        return torch.cat([x, turned.sin(), turned.cos()], dim=-1)

    def width(self, columns: int) -> int:
        """Columns that come out."""
        return columns * (1 + 2 * self.frequencies)
