"""Losses of the FB family as pure functions: tensors in, a value and its named terms out.

Rows are this process's share of a batch; with several processes the loss is that of their batches together,
because sums over rows go through ``parallel.total`` (zol.common.parallel).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from zol.common import parallel


class Loss(NamedTuple):
    """A value to minimise and the named terms it is made of."""

    value: Tensor
    terms: dict[str, Tensor]


def gram_loss(
    F: Tensor, B: Tensor, target_F: Tensor, target_B: Tensor, gamma: Tensor, mass: Tensor | None = None
) -> Loss:
    """The measure loss in O(N d²), exactly. F [P,N,d], B [N,d], target_F [N,d] (ensemble mean), γ [N].

    ``mass`` [N] is what the states of B count for on the diagonal: 1, or more for stretches of several steps.

    With G_i = γ_i F̄_i the square expands into traces of d×d Gram matrices,

        Σ_ij (F_iᵀB_j − G_iᵀB̄_j)² = ⟨FᵀF, BᵀB⟩ − 2⟨FᵀG, BᵀB̄⟩ + ⟨GᵀG, B̄ᵀB̄⟩,

    from which the diagonal is taken off row by row. It needs a target that is linear in the ensemble.
    """
    G = gamma.unsqueeze(-1) * target_F
    rows = F.flatten(0, 1)  # members share B and targets, so their Gram matrices simply add up
    diagonal = (F * B).sum(-1)  # [P, N]
    target_diagonal = (G * target_B).sum(-1)  # [N]
    FF, BB, FG, BT, GG, TT, on, attraction = parallel.total(
        rows.mT @ rows,
        B.mT @ B,
        F.sum(0).mT @ G,
        B.mT @ target_B,
        G.mT @ G,
        target_B.mT @ target_B,
        (diagonal - target_diagonal).square().sum(),
        _weighted(diagonal, mass).sum(),
    )
    squares = (FF * BB).sum() - 2 * (FG * BT).sum() + len(F) * (GG * TT).sum()
    return _measure_loss(squares - on, attraction, len(B))


def dense_loss(F: Tensor, B: Tensor, target: Tensor, gamma: Tensor, mass: Tensor | None = None) -> Loss:
    """The same loss with the N×N matrices written out; target [N,N] may be any function of the ensemble.

    With several processes each has its own rows of the matrices, and B of all processes as columns.
    """
    own = parallel.rank() * len(B)  # the column of our first row
    M = torch.einsum("pid,jd->pij", F, parallel.gather(B))
    error = M - gamma.unsqueeze(-1) * target
    on = error.diagonal(own, dim1=-2, dim2=-1).square().sum()
    diagonal = _weighted(M.diagonal(own, dim1=-2, dim2=-1), mass)
    off, attraction = parallel.total(error.square().sum() - on, diagonal.sum())
    return _measure_loss(off, attraction, len(B))


def _weighted(diagonal: Tensor, mass: Tensor | None) -> Tensor:
    return diagonal if mass is None else diagonal * mass


def _measure_loss(off: Tensor, on: Tensor, n: int) -> Loss:
    """From sums: of squared errors off the diagonal, and of F_iᵀB_i on it."""
    n *= parallel.size()
    terms = {"off_diagonal": 0.5 * off / (n * (n - 1)), "diagonal": on / n}
    value = terms["off_diagonal"] - terms["diagonal"]
    return Loss(value, {name: term.detach() for name, term in terms.items()})


def centring_term(F: Tensor, B: Tensor, constant: Tensor) -> Tensor:
    r"""mean_{i≠j} a_i F_iᵀB_j, summed over members: what a centred measure adds to either loss above.

    A centred model's density is 1/(1 − γ) + FᵀB. Put into the Bellman equation m_i = c_i δ/ρ + γ_i m'_i, this
    leaves F_iᵀB_j = c_i δ_ij/ρ + γ_i F'_iᵀB_j − a_i with

        a_i = (1 − γ_i)/(1 − γ),

    which is 1 for a step, 1/(1 − γ) for one into a terminal state, and (1 − γⁿ)/(1 − γ) for n steps. Of the
    square ½(F_iᵀB_j − γ_i F̄'_iᵀB̄_j + a_i)² only a_i F_iᵀB_j is new and has a gradient. Any pessimistic target
    is as good, because a constant of the ensemble passes through it. In O(N d), ``constant`` [N] being a:

        Σ_{i≠j} a_i F_iᵀB_j = (Σ_i a_i F_i)ᵀ(Σ_j B_j) − Σ_i a_i F_iᵀB_i.
    """
    n = parallel.size() * len(B)
    rows = constant.unsqueeze(-1) * F.sum(0)  # [N, d]
    forward, backward, on = parallel.total(rows.sum(0), B.sum(0), (rows * B).sum())
    return (forward @ backward - on) / (n * (n - 1))


def standing_loss(
    F: Tensor,
    B: Tensor,
    target_F: Tensor,
    gamma: Tensor,
    covariance: Tensor,
    mean: Tensor,
    mass: Tensor | None = None,
    constant: Tensor | None = None,
) -> Loss:
    r"""The measure loss of F alone, where B stands still: pairs become C = E[BBᵀ] and E[B], which are known.

        L = Σ_P mean_i  ½ (F_i − γ_i F̄'_i)ᵀ C (F_i − γ_i F̄'_i) − c_i F_iᵀB_i + a_i F_iᵀE[B]
          = Σ_P mean_i  ½ (F_i − y_i)ᵀ C (F_i − y_i) + constants,    y_i = C⁻¹(c_i B_i − a_i E[B]) + γ_i F̄'_i

    F is thus fitted to the successor features of C⁻¹B. For an orthonormal B, C = I, and without a centred
    measure, a = 0, that is ½ ‖F_i − B(s'_i) − γ_i F̄'_i‖², the plain loss of successor features. ``mass`` [N]
    is c and ``constant`` [N] is a, as above; without them c = 1 and a = 0.
    """
    change = F - gamma.unsqueeze(-1) * target_F  # [P, N, d]
    off = 0.5 * ((change @ covariance) * change).sum(-1)
    if constant is not None:
        off = off + constant * (F @ mean)
    pull = _weighted((F * B).sum(-1), mass)
    terms = {"off_diagonal": len(F) * parallel.mean(off), "diagonal": len(F) * parallel.mean(pull)}
    value = terms["off_diagonal"] - terms["diagonal"]
    return Loss(value, {name: term.detach() for name, term in terms.items()})


def orthonormality_loss(B: Tensor) -> Tensor:
    """½ mean_{i≠j} (B_iᵀB_j)² − mean_i B_iᵀB_i, which pulls E[B Bᵀ] towards the identity; O(N d²)."""
    n = parallel.size() * len(B)
    lengths = B.square().sum(-1)
    gram, on, attraction = parallel.total(B.mT @ B, lengths.square().sum(), lengths.sum())
    return 0.5 * (gram.square().sum() - on) / (n * (n - 1)) - attraction / n


def pessimistic(x: Tensor, penalty: float) -> Tensor:
    """mean_P(x) − penalty · mean_{i≠j} |x_i − x_j| over the ensemble dimension 0."""
    members = x.shape[0]
    if penalty == 0.0 or members == 1:
        return x.mean(0)
    spread = (x.unsqueeze(0) - x.unsqueeze(1)).abs().sum((0, 1)) / (members * (members - 1))
    return x.mean(0) - penalty * spread


def q_loss(
    F: Tensor,
    B: Tensor,
    z: Tensor,
    target_F: Tensor,
    gamma: Tensor,
    penalty: float,
    mass: Tensor | None = None,
    constant: Tensor | None = None,
) -> Tensor:
    """½ Σ_P MSE(Fᵀz, m r̂ + γ Q̄) with r̂ = B·(BᵀB/N)⁻¹z, the reward that z stands for. target_F [P,N,d].

    A centred measure's value is Fᵀz + E[r̂]/(1 − γ), so that a_i E[r̂] is taken off the reward: ``constant`` is
    a as in :func:`centring_term`, and E[r̂] = E[B]·(BᵀB/N)⁻¹z.
    """
    with torch.no_grad():
        covariance = parallel.total(B.mT @ B)[0] / (parallel.size() * len(B))
        reward = _weighted((torch.linalg.solve(covariance, B, left=False) * z).sum(-1), mass)
        if constant is not None:
            mean = parallel.total(B.sum(0))[0] / (parallel.size() * len(B))
            reward = reward - constant * (z @ torch.linalg.solve(covariance, mean))
        target = reward + gamma * pessimistic((target_F * z).sum(-1), penalty)
    error: Tensor = (F * z).sum(-1) - target  # [P, N]
    return 0.5 * len(F) * parallel.mean(error.square())
