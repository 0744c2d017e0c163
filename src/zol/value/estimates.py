r"""What a latent is worth, offline, with an interval: three estimators under one form.

All are on the scale of a mean reward per step. For latents z_1 … z_K and tasks 1 … T:

    ratio        Σ_i w_i r_i / Σ_i w_i,  w = shaped density ratio of π_z     interval: sampled states
    value        (1 − γ) E_{s0}[ F(s0, π_z(s0), z) ]ᵀ E[B r]                  interval: start states, members
    imagination  mean reward of rollouts in the learned world                 interval: start states, members

Intervals are ±1.96 standard errors of what each estimator averages over. They say how well the estimator
knows its own mean, not whether the model behind it is right: docs/value.md has measured calibration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from zol import measure, prompt
from zol.evidence import Evidence
from zol.imagination.rollouts import Imagination
from zol.models.base import Model

Z95 = 1.96


@dataclass(frozen=True)
class Worth:
    """Estimates ``[K, T]`` of K latents on T tasks."""

    mean: Tensor
    error: Tensor  # standard error
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)  # each [K] or [K, T]

    @property
    def low(self) -> Tensor:
        """Lower end of the 95 % interval."""
        return self.mean - Z95 * self.error

    @property
    def high(self) -> Tensor:
        """Upper end of the 95 % interval."""
        return self.mean + Z95 * self.error


@torch.no_grad()
def by_ratio(model: Model, evidence: Evidence, z: Tensor, shaping: measure.Shaping = "relu") -> Worth:
    """Self-normalised importance sampling with the model's own density ratio, for latents ``[K, d]``.

    The standard error is the delta method's, √Σw²(r − J)² / Σw: it grows as the effective sample shrinks.
    """
    features = prompt.backward_features(model, evidence.obs)
    raw = measure.raw_ratio(model, measure.forward_mean(model, evidence.starts, z), features)
    w = measure.shape_weights(raw, shaping)  # [K, N], mean one unless nothing is positive
    n = w.shape[-1]
    mean = w @ evidence.rewards.mT / n
    r = evidence.rewards
    square = w.square()
    spread = (
        square @ r.square().mT - 2 * mean * (square @ r.mT) + mean.square() * square.sum(-1, keepdim=True)
    )
    return Worth(mean, spread.clamp_min(0).sqrt() / n, measure.diagnose(raw, w))


@torch.no_grad()
def by_value(model: Model, evidence: Evidence, z: Tensor) -> Worth:
    """The model's own value of π_z at the start states, F(s0, π_z(s0), z)ᵀ E[B r]."""
    moments = prompt.reward_moments(model, evidence.obs, evidence.rewards)[0]  # [T, d]
    latents = z.unsqueeze(-2)
    F = model.forward(evidence.starts, latents, model.act(evidence.starts, latents))  # [P, K, S, d]
    V = model.measure.scale(model.discount) * torch.einsum("pksd,td->pkts", F, moments)
    if model.measure.offset:
        V = V + model.measure.offset * evidence.rewards.mean(-1).unsqueeze(-1)
    return _over_members_and_starts(V.transpose(0, 1))


def by_imagination(imagination: Imagination, z: Tensor, generator: torch.Generator) -> Worth:
    """The mean reward of rollouts in the learned world, for latents ``[K, d]``."""
    return _over_members_and_starts(imagination.values(z, generator))


def _over_members_and_starts(values: Tensor) -> Worth:
    """``[K, P, T, S]`` → means, and the standard error of both: members and starts vary independently."""
    _, members, _, starts = values.shape
    by_start = values.mean(1).std(-1) / starts**0.5 if starts > 1 else torch.zeros(())
    doubt = values.mean(-1).std(1) if members > 1 else torch.zeros_like(values[:, 0, :, 0])
    error = (by_start**2 + (doubt / members**0.5) ** 2).sqrt()
    return Worth(values.mean((1, 3)), error, {"doubt": doubt})
