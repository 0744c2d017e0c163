"""What F has to know about a B that stands still: C = E[BBᵀ] and E[B].

While B moves, pairs of a batch stand for these means (zol.models.losses). Once it stands still they are
constants of the data, and plain means over all batches since then tell them ever better.
"""

import torch
from torch import Tensor, nn

from zol.models.successor_features import RunningCovariance, RunningMean


class StandingBackward(nn.Module):
    """The means of B over all batches that were seen since it stands still. They are state that resumes."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.covariance = RunningCovariance(dim, rate=0.0)
        self.mean = RunningMean((dim,), rate=0.0)

    @torch.no_grad()
    def see(self, B: Tensor) -> tuple[Tensor, Tensor]:
        """Take in a batch ``[N, d]``; gives C ``[d, d]`` and E[B] ``[d]``."""
        return self.covariance.see(B), self.mean.update(B.sum(0), len(B))
