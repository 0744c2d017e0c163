r"""Several steps of data at once, for bootstraps that wait: from s_t, a_t to s_{t+n}, and a state on the way.

The first n terms of a successor measure along the data, and what follows after them,

    M(s_t, a_t, ·) = Σ_{k<n} γ^k δ(s_{t+k+1}) + γⁿ M(s_{t+n}, ·)  =  c E_k[δ(s_{t+k+1})] + γⁿ M(s_{t+n}, ·),

need one state on the way if its offset k is drawn with probability ∝ γ^k; then c = (1 − γⁿ)/(1 − γ).
Near the end of an episode n is what is left of it.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from zol.data.dataset import Batch
from zol.data.resident import Source


def look_ahead(source: Source, steps: Tensor, n: int, discount: float, chance: Tensor) -> Batch:
    """The stretches of up to ``n`` transitions that begin with ``steps``; ``chance`` [N] in [0, 1) draws k.

    ``next_obs`` and ``terminated`` are those of the last transition, ``goal`` is s_{t+k+1}, ``length`` is n.
    """
    length = source.left(steps).clamp(max=n)
    mass = 1 - discount ** length.double()
    offset = (torch.log1p(-chance.double() * mass) / math.log(discount)).long()  # P(k) ∝ γ^k, k < n
    offset = torch.minimum(offset, length - 1)  # rounding at the upper end
    first, last = source.take(steps), source.take(steps + length - 1)
    return replace(
        first,
        next_obs=last.next_obs,
        terminated=last.terminated,
        goal=source.take(steps + offset).next_obs,
        length=length,
    )
