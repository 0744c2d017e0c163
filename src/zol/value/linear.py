r"""Flow and Bellman equations in a linear class: functions φ(s, a)ᵀx of m given features.

With g = φᵀx the equations of :mod:`zol.value.steps` are m linear ones,

    A θ = (1 − γ) b        ratio  w = φᵀθ           A = E_β[(φ − γ'φ') φᵀ],   b = E_0[φ(s0, a0)]
    Aᵀξ = E_β[φ r]         value  Q = φᵀξ           (LSTD-Q)

and E_β[w r] = (1 − γ) E_0[Q]: primal and dual are the same number, exact if either the true ratio or the true
Q lies in the span. Neither depends on the basis, so features are first made orthonormal in the data,
E_β[φφᵀ] = I, which keeps A well-conditioned; directions that the features do not have are left out.

**Shrinkage.** (A + λ E_β[φφᵀ]) θ = (1 − γ) b draws w towards zero, in every basis alike. How far is chosen on
transitions that θ was not fitted to, by the residual of the flow equation in the worst direction of the span:

    max_g ( E_β[w (g − γ'g')] − (1 − γ) E_0[g] )  over E_β[g²] ≤ 1   =   ‖A θ − (1 − γ) b‖
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RANK = 1e-10  # of the largest eigenvalue of E[φφᵀ]: what features in float32 still tell apart
FOLDS = 5
GRID = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, float("inf"))  # λ


@dataclass(frozen=True)
class FlowEquations:
    """The equations of K policies in orthonormal features, with the folds of the sample apart."""

    phi: Tensor  # φ(s, a), [K, N, m]
    change: Tensor  # φ(s, a) − γ'φ(s', a'), [K, N, m]
    start: Tensor  # φ(s0, a0), [K, S, m]
    sums: Tensor  # Σ (φ − γ'φ') φᵀ of every fold, [G, K, m, m]
    sizes: Tensor  # rows of every fold, [G]
    left_out: Tensor  # one on the diagonal for directions without features, [K, m, m]
    gamma: float

    @staticmethod
    def of(
        phi: Tensor, following: Tensor, start: Tensor, discount: Tensor, gamma: float, folds: int = FOLDS
    ) -> "FlowEquations":
        """From φ(s, a), φ(s', a') ``[K, N, m]``, φ(s0, a0) ``[K, S, m]`` and γ' ``[N]``.

        Row i is in fold i mod G. Gradients flow through the features, not through the change of basis:
        no solution depends on it.
        """
        phi, following, start = phi.double(), following.double(), start.double()
        with torch.no_grad():
            size, direction = torch.linalg.eigh(phi.mT @ phi / phi.shape[-2])
            kept = size > RANK * size.amax(-1, keepdim=True)
            basis = direction * torch.where(kept, size.clamp_min(1e-300).rsqrt(), 0.0).unsqueeze(-2)
        phi = phi @ basis
        change = phi - discount.double().unsqueeze(-1) * (following @ basis)
        sums = [change[:, g::folds].mT @ phi[:, g::folds] for g in range(folds)]
        sizes = torch.tensor([float(len(range(g, phi.shape[-2], folds))) for g in range(folds)])
        left_out = torch.diag_embed((~kept).double())
        return FlowEquations(phi, change, start @ basis, torch.stack(sums), sizes.double(), left_out, gamma)

    @property
    def A(self) -> Tensor:
        """E_β[(φ − γ'φ') φᵀ], ``[K, m, m]``."""
        return self.sums.sum(0) / self.sizes.sum() + self.left_out

    @property
    def b(self) -> Tensor:
        """E_0[φ(s0, a0)], ``[K, m]``."""
        return self.start.mean(-2)

    @property
    def covariance(self) -> Tensor:
        """E_β[φφᵀ], ``[K, m, m]``: the identity, but for its gradient."""
        return self.phi.mT @ self.phi / self.phi.shape[-2]

    def dual(self, ridge: Tensor) -> Tensor:
        """θ ``[K, m]`` with (A + λ E[φφᵀ]) θ = (1 − γ) b, for λ ``[K]``; an infinite λ gives zero."""
        return self._solve(self.A, ridge, (1.0 - self.gamma) * self.b)

    def primal(self, ridge: Tensor, target: Tensor) -> Tensor:
        """ξ ``[K, T, m]`` with (A + λ E[φφᵀ])ᵀ ξ = E_β[φ y], for targets y ``[K, T, N]``."""
        moment = target @ self.phi / self.phi.shape[-2]  # E[φ y], [K, T, m]
        return self._solve(self.A.mT.unsqueeze(1), ridge.unsqueeze(-1), moment)

    def _solve(self, A: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
        finite = ridge.isfinite()
        covariance = self.covariance if A.ndim == 3 else self.covariance.unsqueeze(1)
        shrunk = A + torch.where(finite, ridge, 0.0)[..., None, None] * covariance
        found = torch.linalg.solve(shrunk, right.unsqueeze(-1)).squeeze(-1)
        return torch.where(finite.unsqueeze(-1), found, 0.0)

    @torch.no_grad()
    def held_out_residual(self, ridges: Sequence[float]) -> Tensor:
        """‖A θ − (1 − γ) b‖ on the fold that θ was not fitted to, ``[λ, K]``; that of w = 0 is one."""
        b = (1.0 - self.gamma) * self.b
        finite = torch.tensor([ridge for ridge in ridges if ridge < torch.inf], dtype=b.dtype)
        total = torch.zeros(len(finite), len(b), dtype=b.dtype)
        for part, size in zip(self.sums, self.sizes, strict=True):
            rest = (self.sums.sum(0) - part) / (self.sizes.sum() - size) + self.left_out
            shrunk = rest + finite[:, None, None, None] * self.covariance  # [λ, K, m, m]
            theta, failed = torch.linalg.solve_ex(shrunk, b.unsqueeze(-1).expand(len(finite), -1, -1, 1))
            error = (part / size @ theta).squeeze(-1) - b
            squares = torch.where(failed.bool(), torch.inf, error.square().sum(-1))
            total += squares.nan_to_num(torch.inf) / len(self.sizes)
        relative = (total / b.square().sum(-1).clamp_min(torch.finfo(b.dtype).tiny)).sqrt()
        known = iter(relative)
        return torch.stack([next(known) if r < torch.inf else torch.ones(len(b)).double() for r in ridges])

    def choose(self, grid: Sequence[float] = GRID) -> tuple[Tensor, Tensor]:
        """The λ ``[K]`` of the grid with the least held-out residual, and that residual ``[K]``."""
        least, which = self.held_out_residual(grid).min(0)
        return torch.tensor(grid, dtype=least.dtype)[which], least
