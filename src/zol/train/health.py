r"""Numbers that show whether a pretrained model is sound, whatever its rewards: identities it must satisfy.

A loss says how training goes; these numbers say whether the model means what it should. They are computed on
a sample of the training data that stays the same through a run: transitions (s, a, s'), latents z (half from
the sphere, half B of a state) and start states s0. The sample is **not held out**, because taking rows away
from training would change what is learned; so the numbers show how well the model fits, not how well it
generalises. For the default measure (:mod:`zol.measure` has the same equations for other conventions):

    covariance_gap     ‖E[BBᵀ] − I‖_F / √d, with ‖E[BBᵀ]‖²_F = mean_{i≠j} (B_iᵀB_j)², whose expectation does
                       not depend on the size of the sample                                               → 0
    rank               (tr E[BBᵀ])² / ‖E[BBᵀ]‖²_F: how many of the d dimensions B uses                    → d
    ratio_mean         E_z E_s[w_z(s)],  w_z = (1 − γ) μ(z)ᵀB: the mass of an occupancy                   → 1
    ratio_error        E_z |E_s[w_z(s)] − 1|: the same without cancelling between latents                 → 0
    ratio_negative     share of pairs (z, s) with w_z(s) < 0                                              → 0
    bellman_residual   √(E‖ε‖² / E‖C F‖²),  ε = C F(s,a,z) − B(s') − γ C F(s',π_z(s'),z),  C = E[BBᵀ]     → 0
    bellman_mass       mean_{i≠j} (F_iᵀB_j − γ_i F'_iᵀB_j): the mass of the next state's law              → 1
    F_norm             √E‖F‖²
    F_variance         tr Cov(F) / E‖F‖²: near 0, F is the same everywhere
    F_disagreement     √(E Var_P(F) / E‖F‖²) between ensemble members
    Q_actor            E[Q_z(s, π_z(s))],  Q_z = F(s, a, z)ᵀz: the value of π_z for its own reward Bᵀz
    Q_gain             E[Q_z(s, π_z(s)) − Q_z(s, a)]: what the actor gains over the data, by F            > 0

ε is the Bellman equation of M = FᵀB integrated against B: C F are the successor features of B. Healthy
ranges, and what a drift means, are in docs/metrics.md.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol import measure
from zol.data import Batch, Dataset
from zol.models.base import Model


@dataclass(frozen=True)
class HealthSample:
    """The transitions, start states and directions of latents that every check of a run uses.

    They are drawn from the training data, not held out from it.
    """

    batch: Batch
    starts: Tensor  # [S, D]
    directions: Tensor  # latents before their projection, [N, d]

    @staticmethod
    def draw(dataset: Dataset, z_dim: int, seed: int, rows: int = 512, starts: int = 32) -> "HealthSample":
        """Draw a sample with a generator of its own, so that the run's random numbers stay what they were."""
        generator = torch.Generator().manual_seed(seed)
        batch = dataset.sample(min(rows, len(dataset)), generator, physics=False)
        directions = torch.randn(len(batch), z_dim, generator=generator)
        return HealthSample(batch, dataset.starts(starts, generator), directions)

    def to(self, device: torch.device) -> "HealthSample":
        """The same sample on another device."""
        return HealthSample(self.batch.to(device), self.starts.to(device), self.directions.to(device))


@torch.no_grad()
def check_health(model: Model, sample: HealthSample, latents: int = 16) -> dict[str, Tensor]:
    """All numbers above; the ratio is averaged over the first ``latents`` latents."""
    batch, n = sample.batch, len(sample.batch)
    B = model.backward(batch.next_obs)  # [N, d]
    uniform = torch.arange(n, device=B.device).unsqueeze(-1) % 2 == 0
    z = model.project(torch.where(uniform, sample.directions, B.roll(1, dims=0)))
    F = model.forward(batch.obs, z, batch.action)  # [P, N, d]
    next_F = model.forward(batch.next_obs, z, model.act(batch.next_obs, z)).mean(0)
    ratio = measure.raw_ratio(model, measure.forward_mean(model, sample.starts, z[:latents]), B)  # [K, N]
    actor_F = model.forward(batch.obs, z, model.act(batch.obs, z)).mean(0)
    counted = measure.first_state(model, batch.obs, batch.next_obs)
    first = B if counted is batch.next_obs else model.backward(counted)  # [N, d]
    gamma = model.discount * (~batch.terminated).to(B.dtype)
    residual, mass = measure.bellman_residual(model, F.mean(0), next_F, first, B, gamma)
    mean_reward = z @ B.mean(0)  # of the reward Bᵀz, whose moment E[B r] is z where B is white
    reward_here = (first * z).sum(-1)  # used only by measures that count s itself, and then first is B(s)

    def value(forward: Tensor) -> Tensor:
        product = (forward * z).sum(-1)
        return measure.discounted_return(model, product, mean_reward, reward_here, normalised=False)  # [N]

    actor_value = value(actor_F)
    return {
        **_features(B),
        "ratio_mean": ratio.mean(),
        "ratio_error": (ratio.mean(-1) - 1).abs().mean(),
        "ratio_negative": (ratio < 0).to(B.dtype).mean(),
        "bellman_residual": residual,
        "bellman_mass": mass,
        **_forward(F),
        "Q_actor": actor_value.mean(),
        "Q_gain": (actor_value - value(F.mean(0))).mean(),
    }


def _features(B: Tensor) -> dict[str, Tensor]:
    n, d = B.shape
    lengths = B.square().sum(-1)
    squares = ((B.mT @ B).square().sum() - lengths.square().sum()) / (n * (n - 1))  # ‖E[BBᵀ]‖²
    trace = lengths.mean()
    gap = (squares - 2 * trace + d).clamp_min(0).sqrt() / d**0.5
    return {"covariance_gap": gap, "rank": trace.square() / squares.clamp_min(1e-12)}


def _forward(F: Tensor) -> dict[str, Tensor]:
    square = F.square().sum(-1).mean().clamp_min(1e-12)  # E‖F‖²
    rows = F.flatten(0, 1)
    members = F.var(0, correction=0).sum(-1).mean()
    return {
        "F_norm": square.sqrt(),
        "F_variance": rows.var(0, correction=0).sum() / square,
        "F_disagreement": (members / square).sqrt(),
    }
