"""Losses of the FB family as pure functions: tensors in, a value and its named terms out."""

from typing import NamedTuple

import torch
from torch import Tensor


class Loss(NamedTuple):
    """A value to minimise and the named terms it is made of."""

    value: Tensor
    terms: dict[str, Tensor]


def gram_loss(F: Tensor, B: Tensor, target_F: Tensor, target_B: Tensor, gamma: Tensor) -> Loss:
    """The measure loss in O(N d²), exactly. F [P,N,d], B [N,d], target_F [N,d] (ensemble mean), γ [N].

    With G_i = γ_i F̄_i the square expands into traces of d×d Gram matrices,

        Σ_ij (F_iᵀB_j − G_iᵀB̄_j)² = ⟨FᵀF, BᵀB⟩ − 2⟨FᵀG, BᵀB̄⟩ + ⟨GᵀG, B̄ᵀB̄⟩,

    from which the diagonal is taken off row by row. It needs a target that is linear in the ensemble.
    """
    n = len(B)
    G = gamma.unsqueeze(-1) * target_F
    rows = F.flatten(0, 1)  # members share B and targets, so their Gram matrices simply add up
    squares = ((rows.mT @ rows) * (B.mT @ B)).sum()
    crossed = ((F.sum(0).mT @ G) * (B.mT @ target_B)).sum()
    targets = F.shape[0] * ((G.mT @ G) * (target_B.mT @ target_B)).sum()
    diagonal = (F * B).sum(-1)  # [P, N]
    target_diagonal = (G * target_B).sum(-1)  # [N]
    off = squares - 2 * crossed + targets - (diagonal - target_diagonal).square().sum()
    return _measure_loss(0.5 * off / (n * (n - 1)), diagonal)


def dense_loss(F: Tensor, B: Tensor, target: Tensor, gamma: Tensor) -> Loss:
    """The same loss with the N×N matrices written out; target [N,N] may be any function of the ensemble."""
    n = len(B)
    M = torch.einsum("pid,jd->pij", F, B)
    error = M - gamma.unsqueeze(-1) * target
    diagonal = error.diagonal(dim1=-2, dim2=-1)
    off = error.square().sum() - diagonal.square().sum()
    return _measure_loss(0.5 * off / (n * (n - 1)), M.diagonal(dim1=-2, dim2=-1))


def _measure_loss(off_diagonal: Tensor, diagonal: Tensor) -> Loss:
    attraction = diagonal.mean(-1).sum()
    terms = {"off_diagonal": off_diagonal, "diagonal": attraction}
    return Loss(off_diagonal - attraction, {name: term.detach() for name, term in terms.items()})


def orthonormality_loss(B: Tensor) -> Tensor:
    """½ mean_{i≠j} (B_iᵀB_j)² − mean_i B_iᵀB_i, which pulls E[B Bᵀ] towards the identity; O(N d²)."""
    n = len(B)
    lengths = B.square().sum(-1)
    off = (B.mT @ B).square().sum() - lengths.square().sum()
    return 0.5 * off / (n * (n - 1)) - lengths.mean()


def pessimistic(x: Tensor, penalty: float) -> Tensor:
    """mean_P(x) − penalty · mean_{i≠j} |x_i − x_j| over the ensemble dimension 0."""
    members = x.shape[0]
    if penalty == 0.0 or members == 1:
        return x.mean(0)
    spread = (x.unsqueeze(0) - x.unsqueeze(1)).abs().sum((0, 1)) / (members * (members - 1))
    return x.mean(0) - penalty * spread


def q_loss(F: Tensor, B: Tensor, z: Tensor, target_F: Tensor, gamma: Tensor, penalty: float) -> Tensor:
    """½ Σ_P MSE(Fᵀz, r̂ + γ Q̄) with r̂ = B·(BᵀB/N)⁻¹z, the reward that z stands for. target_F [P,N,d]."""
    with torch.no_grad():
        covariance = B.mT @ B / len(B)
        reward = (torch.linalg.solve(covariance, B, left=False) * z).sum(-1)
        target = reward + gamma * pessimistic((target_F * z).sum(-1), penalty)
    error: Tensor = (F * z).sum(-1) - target  # [P, N]
    return 0.5 * error.square().mean(-1).sum()
