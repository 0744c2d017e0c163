r"""What a pretrained model must satisfy whatever its rewards: identities, checked on states held for it.

A loss says how training goes; these say whether the model means what it should. On held transitions
(s, a, s'), latents z (half from the sphere, half B of a state) and start states s0:

    covariance_gap     ‖E[BBᵀ] − I‖_F / √d, from ‖E[BBᵀ]‖²_F = mean_{i≠j} (B_iᵀB_j)², which has no bias of its
                       own in a finite sample                                                             → 0
    rank               (tr E[BBᵀ])² / ‖E[BBᵀ]‖²_F: how many of the d dimensions B uses                    → d
    ratio_mean         E_z E_s[w_z(s)],  w_z = (1 − γ) μ(z)ᵀB: the mass of an occupancy                   → 1
    ratio_error        E_z |E_s[w_z(s)] − 1|: the same without cancelling between latents                 → 0
    ratio_negative     share of pairs (z, s) with w_z(s) < 0                                              → 0
    bellman_residual   √(E‖ε‖² / E‖C F‖²),  ε = C F(s,a,z) − B(s') − γ C F(s',π_z(s'),z),  C = E[BBᵀ]     → 0
    bellman_mass       mean_{i≠j} (F_iᵀB_j − γ_i F'_iᵀB_j): the mass of the next state's law              → 1
    F_norm             √E‖F‖²
    F_variance         tr Cov(F) / E‖F‖²: near 0, F is the same everywhere
    F_disagreement     √(E Var_P(F) / E‖F‖²) between ensemble members
    Q_actor            E[F(s, π_z(s), z)ᵀz]
    Q_gain             E[F(s, π_z(s), z)ᵀz − F(s, a, z)ᵀz]: what the actor gains over the data, by F      > 0

ε is the Bellman equation of M = FᵀB integrated against B: C F are the successor features of B. Healthy
ranges, and what a drift means, are in docs/training.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol.data import Batch, Dataset
from zol.measure import forward_mean, raw_ratio
from zol.models.base import Model


@dataclass(frozen=True)
class Held:
    """Transitions, start states and directions that every check of a run uses."""

    batch: Batch
    starts: Tensor  # [S, D]
    directions: Tensor  # [N, d]: latents before their projection

    @staticmethod
    def draw(dataset: Dataset, z_dim: int, seed: int, rows: int = 512, starts: int = 32) -> "Held":
        """A fixed sample; it takes nothing from the generator of the run."""
        generator = torch.Generator().manual_seed(seed)
        batch = dataset.sample(min(rows, len(dataset)), generator, physics=False)
        directions = torch.randn(len(batch), z_dim, generator=generator)
        return Held(batch, dataset.starts(starts, generator), directions)

    def to(self, device: torch.device) -> "Held":
        """The same sample on another device."""
        return Held(self.batch.to(device), self.starts.to(device), self.directions.to(device))


@torch.no_grad()
def check_health(model: Model, held: Held, latents: int = 16) -> dict[str, Tensor]:
    """All numbers above; the ratio is averaged over the first ``latents`` latents."""
    batch, n = held.batch, len(held.batch)
    B = model.backward(batch.next_obs)  # [N, d]
    uniform = torch.arange(n, device=B.device).unsqueeze(-1) % 2 == 0
    z = model.project(torch.where(uniform, held.directions, B.roll(1, dims=0)))
    F = model.forward(batch.obs, z, batch.action)  # [P, N, d]
    next_F = model.forward(batch.next_obs, z, model.act(batch.next_obs, z)).mean(0)
    gamma = model.discount * (~batch.terminated).to(B.dtype)
    ratio = raw_ratio(model, forward_mean(model, held.starts, z[:latents]), B)  # [K, N]
    values = (model.forward(batch.obs, z, model.act(batch.obs, z)).mean(0) * z).sum(-1)
    return {
        **_features(B),
        "ratio_mean": ratio.mean(),
        "ratio_error": (ratio.mean(-1) - 1).abs().mean(),
        "ratio_negative": (ratio < 0).to(B.dtype).mean(),
        **_bellman(F.mean(0), next_F, B, gamma),
        **_forward(F),
        "Q_actor": values.mean(),
        "Q_gain": (values - (F.mean(0) * z).sum(-1)).mean(),
    }


def _features(B: Tensor) -> dict[str, Tensor]:
    n, d = B.shape
    lengths = B.square().sum(-1)
    squares = ((B.mT @ B).square().sum() - lengths.square().sum()) / (n * (n - 1))  # ‖E[BBᵀ]‖²
    trace = lengths.mean()
    gap = (squares - 2 * trace + d).clamp_min(0).sqrt() / d**0.5
    return {"covariance_gap": gap, "rank": trace.square() / squares.clamp_min(1e-12)}


def _bellman(F: Tensor, next_F: Tensor, B: Tensor, gamma: Tensor) -> dict[str, Tensor]:
    n = len(B)
    C = B.mT @ B / n
    change = F - gamma.unsqueeze(-1) * next_F  # [N, d]
    error = change @ C - B
    mass = (change.sum(0) @ B.sum(0) - (change * B).sum()) / (n * (n - 1))
    return {
        "bellman_residual": (error.square().sum() / (F @ C).square().sum().clamp_min(1e-12)).sqrt(),
        "bellman_mass": mass,
    }


def _forward(F: Tensor) -> dict[str, Tensor]:
    square = F.square().sum(-1).mean().clamp_min(1e-12)  # E‖F‖²
    rows = F.flatten(0, 1)
    members = F.var(0, correction=0).sum(-1).mean()
    return {
        "F_norm": square.sqrt(),
        "F_variance": rows.var(0, correction=0).sum() / square,
        "F_disagreement": (members / square).sqrt(),
    }
