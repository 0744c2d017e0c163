r"""Flow and Bellman equations in a linear class: functions φ(s, a)ᵀx of m given features.

With g = φᵀx the equations of :mod:`zol.value.steps` are m linear ones,

    A θ = (1 − γ) b        ratio  w = φᵀθ           A = E_β[(φ − γ'φ') φᵀ],   b = E_0[φ(s0, a0)]
    Aᵀξ = E_β[φ r]         value  Q = φᵀξ           (LSTD-Q)

and E_β[w r] = (1 − γ) E_0[Q]: primal and dual are the same number, exact if either the true ratio or the true
Q lies in the span.

**Shrinkage.** Off the policy's own data A may be close to singular, and A + λI even more so. A least-squares
form is not:

    θ = argmin  ‖A θ − (1 − γ) b‖² + λ s E_β[w²],        s the largest eigenvalue of E_β[φφᵀ]

The first term is the square of the largest violation of the flow equation by a g = φᵀx with ‖x‖ ≤ 1. Where
the features are F, these are the model's own action values of all rewards with ‖E[B r]‖ ≤ 1. The second is
the variance of w. λ = 0 gives back the equations, an infinite one w = 0. In between λ is chosen by the
violation on transitions that θ was not fitted to.

Computations are done in a basis that is orthonormal in the data, E_β[φφᵀ] = I, and leaves out directions that
the features do not have. There the norm of the first term has the weights D² = eigenvalues / s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RANK = 1e-10  # of the largest eigenvalue of E[φφᵀ]: what features in float32 still tell apart
FOLDS = 5
GRID = (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, float("inf"))  # λ


@dataclass(frozen=True)
class FlowEquations:
    """The equations of K policies in an orthonormal basis, with the folds of the sample apart."""

    phi: Tensor  # φ(s, a), [K, N, m]
    change: Tensor  # φ(s, a) − γ'φ(s', a'), [K, N, m]
    start: Tensor  # φ(s0, a0), [K, S, m]
    sums: Tensor  # Σ (φ − γ'φ') φᵀ of every fold, [G, K, m, m]
    sizes: Tensor  # rows of every fold, [G]
    left_out: Tensor  # one on the diagonal for directions without features, [K, m, m]
    D: Tensor  # weights of violations, [K, m]
    variance: Tensor  # s E_β[φφᵀ] in units of s: the identity, but for its gradient, [K, m, m]
    gamma: float

    @staticmethod
    def of(
        phi: Tensor, following: Tensor, start: Tensor, discount: Tensor, gamma: float, folds: int = FOLDS
    ) -> "FlowEquations":
        """From φ(s, a), φ(s', a') ``[K, N, m]``, φ(s0, a0) ``[K, S, m]`` and γ' ``[N]`` or ``[K, N]``.

        Row i is in fold i mod G. Gradients flow through the features; the basis counts as given.
        """
        phi, following, start = phi.double(), following.double(), start.double()
        n = phi.shape[-2]
        with torch.no_grad():
            basis, size = orthonormal(phi)
            D = torch.where(size > 0, (size / size[:, -1:]).sqrt(), 1.0)
        phi = phi @ basis
        left_out = torch.diag_embed((size == 0).double())
        s = phi[..., -1:].square().mean(-2, keepdim=True) * size[:, None, -1:]  # s, with its gradient
        variance = s / s.detach() * (phi.mT @ phi / n) + left_out
        change = phi - discount.double().unsqueeze(-1) * (following @ basis)
        sums = torch.stack([change[:, g::folds].mT @ phi[:, g::folds] for g in range(folds)])
        sizes = torch.tensor([len(range(g, n, folds)) for g in range(folds)], dtype=torch.float64)
        return FlowEquations(phi, change, start @ basis, sums, sizes, left_out, D, variance, gamma)

    @property
    def A(self) -> Tensor:
        """E_β[(φ − γ'φ') φᵀ], ``[K, m, m]``."""
        return self.sums.sum(0) / self.sizes.sum() + self.left_out

    @property
    def b(self) -> Tensor:
        """E_0[φ(s0, a0)], ``[K, m]``."""
        return self.start.mean(-2)

    def dual(self, ridge: Tensor) -> Tensor:
        """θ ``[K, m]`` of the ratio w = φᵀθ, for λ ``[K]``."""
        right = torch.cat([torch.zeros_like(self.b), (1.0 - self.gamma) * self.D * self.b], dim=-1)
        return self._solve(ridge, right.unsqueeze(-1))[:, : self.b.shape[-1]].squeeze(-1)

    def primal(self, ridge: Tensor, target: Tensor) -> Tensor:
        """ξ ``[K, m, T]`` of the value Q = φᵀξ of targets y ``[K, N, T]``: (1 − γ) b·ξ = E_β[w y] always."""
        moment = self.phi.mT @ target.double() / self.phi.shape[-2]  # E[φ y], [K, m, T]
        found = self._solve(ridge, torch.cat([moment, torch.zeros_like(moment)], dim=-2))
        return -self.D.unsqueeze(-1) * found[:, self.b.shape[-1] :]

    def _solve(self, ridge: Tensor, right: Tensor) -> Tensor:
        """The normal equations of the least squares, as a system that does not square A: ``[K, 2m, X]``.

        λ θ − AᵀD y = first half,     D A θ + y = second half
        """
        A, eye = self.A, torch.eye(self.A.shape[-1], dtype=self.A.dtype)
        finite = ridge.isfinite()[:, None, None]
        DA = self.D.unsqueeze(-1) * A
        shrink = torch.where(finite, ridge[:, None, None], 1.0) * self.variance
        system = torch.cat([torch.cat([shrink, -DA.mT], -1), torch.cat([DA, eye.expand_as(DA)], -1)], -2)
        found, failed = torch.linalg.solve_ex(system, right)
        return torch.where(finite & (failed == 0)[:, None, None], found, 0.0)

    @torch.no_grad()
    def violation(self, ratio: Tensor) -> Tensor:
        """‖E_β[w (φ − γ'φ')] − (1 − γ) b‖ of any ratio ``[K, N]``, relative to the one of w = 0: ``[K]``."""
        b = (1.0 - self.gamma) * self.b
        flow = (ratio.double().unsqueeze(-2) @ self.change).squeeze(-2) / ratio.shape[-1]
        return (self.D * (flow - b)).norm(dim=-1) / (self.D * b).norm(dim=-1)

    @torch.no_grad()
    def held_out_violation(self, ridges: Sequence[float]) -> Tensor:
        """The square of it for w = φᵀθ on each fold, θ fitted to the others, ``[G, λ, K]``."""
        b = (1.0 - self.gamma) * self.b
        unit = (self.D * b).square().sum(-1)
        found = []
        for part, size in zip(self.sums, self.sizes, strict=True):
            rest = (self.sums.sum(0) - part) / (self.sizes.sum() - size) + self.left_out
            U, sigma, V = torch.linalg.svd(self.D.unsqueeze(-1) * rest)
            along = (U.mT @ (self.D * b).unsqueeze(-1)).squeeze(-1)  # of the right side, [K, m]
            for ridge in ridges:
                gain = sigma / (sigma.square() + ridge).clamp_min(1e-300)
                theta = V.mT @ (gain * along).unsqueeze(-1)
                error = self.D * ((part / size @ theta).squeeze(-1) - b)
                found.append(error.square().sum(-1) / unit)
        return torch.stack(found).nan_to_num(torch.inf).reshape(len(self.sizes), len(ridges), -1)

    def choose(self, grid: Sequence[float] = GRID) -> tuple[Tensor, Tensor]:
        """λ ``[K]`` and its held-out violation ``[K]``.

        The largest λ of an ascending grid that is no worse than the best one by more than the standard error
        between folds: a smaller one would be chosen for the noise in it.
        """
        folds = self.held_out_violation(grid)
        mean = folds.mean(0)  # [λ, K]
        least, best = mean.min(0)
        spread = folds.std(0).gather(0, best.unsqueeze(0)).squeeze(0) if len(folds) > 1 else 0.0 * least
        good = mean <= least + spread / len(folds) ** 0.5
        last = len(grid) - 1 - good.flip(0).to(torch.uint8).argmax(0)
        violation = mean.gather(0, last.unsqueeze(0)).squeeze(0)
        return torch.tensor(grid, dtype=mean.dtype)[last], violation.sqrt()

    def iterate(self, target: Tensor, weights: Tensor, rounds: int) -> Tensor:
        """Fitted Q evaluation: ``rounds`` times ξ ← argmin E_β[(φᵀξ − y − γ'φ'ᵀξ_before)²], ``[K, m, T]``.

        In an orthonormal basis that is ξ ← E[φ y] + (I − Aᵀ) ξ, for y ``[…, N, T]``. It converges unless the
        data are too far from the policy; of iterations that do not, the one that moved least is kept.
        """
        moment = self.phi.mT @ target.double() / self.phi.shape[-2]
        step = torch.eye(weights.shape[-2], dtype=weights.dtype) - self.A.mT
        best, least = weights, torch.full_like(weights[:, :1], torch.inf)
        for _ in range(rounds):
            following = moment + step @ weights
            moved = (following - weights).norm(dim=-2, keepdim=True)
            best = torch.where(moved <= least, following, best)
            least = torch.minimum(moved, least)
            weights = following
        return best


def orthonormal(features: Tensor) -> tuple[Tensor, Tensor]:
    """W ``[K, m, m]`` for which the columns of φW are orthonormal, and the eigenvalues of E[φφᵀ] ``[K, m]``.

    Directions that features ``[K, N, m]`` do not have are left out: their columns and eigenvalues are zero.
    """
    size, direction = torch.linalg.eigh(features.mT @ features / features.shape[-2])
    size = torch.where(size > RANK * size[:, -1:], size, 0.0)
    return direction * torch.where(size > 0, size, 1.0).rsqrt().unsqueeze(-2) * (size > 0).unsqueeze(-2), size
