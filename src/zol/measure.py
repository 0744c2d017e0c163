r"""From the successor measure to the density ratio: the identity that ZOL rests on.

For any policy π_z the discounted occupancy is the average of its successor measure over start states,
so its density with respect to the data can be read off a pretrained model (paper, boxed equation):

    μ(z)   = E_{s0}[ F(s0, π_z(s0), z) ]                                          :func:`forward_mean`
    w_z(s) = d^{π_z}(s) / ρ(s)  =  (1 − γ) μ(z)ᵀ B(s)                              :func:`raw_ratio`
    E_ρ[w_z] = 1,   E_ρ[w_z r] = (1 − γ) E Σ_t γ^t r(s_{t+1}) = J(π_z)

Approximate models give ratios that are noisy, sometimes negative: :func:`shape_weights` makes them
positive, of mean one, and bounded. This file alone knows the measure conventions.

**Two conventions.** Our models sum over *next* states, so J counts rewards from s_1 on. The paper's
sum begins with s_0 itself. With d^cur = (1 − γ)ρ0 + γ d^next the two returns differ by the reward of the
start states alone: J^cur = (1 − γ) E_{ρ0}[r] + γ J^next; :func:`next_state_return` converts.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from zol.models.base import Model

Shaping = Literal["softplus", "relu", "exp", "linear"]


def forward_mean(model: Model, starts: Tensor, z: Tensor) -> Tensor:
    """μ(z) ``[..., d]`` for latents ``[..., d]``: the mean of F over ensemble and start states.

    ``starts`` is ``[S, D]``, shared by all latents, or ``[..., S, D]`` with the latents' leading
    dimensions. Differentiable in z, through the policy as well as through F.
    """
    z = z.unsqueeze(-2)  # [..., 1, d] against [..., S, D]
    action = model.act(starts, z)
    return model.forward(starts, z, action).mean(dim=(0, -2))


def raw_ratio(model: Model, mu: Tensor, features: Tensor) -> Tensor:
    """w_z(s) ``[..., N]`` from μ ``[..., d]`` and B(s) ``[N, d]``, before any shaping."""
    return model.measure.scale(model.discount) * (mu @ features.mT) + model.measure.offset


def next_state_return(model: Model, estimate: Tensor, start_reward: Tensor) -> Tensor:
    """The return from s_1 on, whatever convention the model's measure has.

    ``start_reward`` is E_{ρ0}[r(s0)], needed only by models whose sum begins with the current state.
    """
    if model.measure.begins == "next":
        return estimate
    return (estimate - (1.0 - model.discount) * start_reward) / model.discount


def action_value(
    model: Model,
    F: Tensor,
    moment: Tensor,
    mean_reward: Tensor | float = 0.0,
    reward_here: Tensor | float = 0.0,
) -> Tensor:
    """Q(s, a) = E Σ_t γ^t r(s_{t+1}) ``[P, ...]`` in units of reward, from F ``[P, ..., d]`` and E_ρ[B r].

    The moment E_ρ[B r] is not projected, and not whitened either: M = FᵀB ρ makes Q = Fᵀ E_ρ[B r] for any B.
    ``mean_reward`` E_ρ[r] matters for centred models only, ``reward_here`` r(s) for those whose sum begins
    with the current state; without them Q is right up to a constant that no action changes.
    """
    mean = model.measure.scale(model.discount) * (F * moment).sum(-1) + model.measure.offset * mean_reward
    return next_state_return(model, mean, torch.as_tensor(reward_here)) / (1.0 - model.discount)


def shape_weights(
    raw: Tensor,
    how: Shaping = "softplus",
    *,
    sharpness: float = 1.0,
    normalise: bool = True,
    clip: Tensor | float | None = None,
    renormalise: bool = False,
) -> Tensor:
    """Ratios ``[..., N]`` → weights: positive, of mean one over the sample, at most ``clip``.

    ``how`` makes them positive:
      softplus  log(1 + e^{k·x})/k with k = ``sharpness``. k = 1 is the paper's; it has a floor of
                log 2 ≈ 0.69 at x = 0, which flattens the weights; k = 10 is close to relu.
      relu      max(x, 0)
      exp       e^{k(x − max x)}: the authors' code. An exponential tilt, not a density ratio.
      linear    x itself, negative values and all: the unbiased form.
    ``normalise`` divides by the mean; then weights above ``clip`` are cut (paper), and with
    ``renormalise`` divided by their mean once more (authors' code).
    """
    if how == "softplus":
        weights = functional.softplus(raw * sharpness) / sharpness
    elif how == "relu":
        weights = raw.clamp_min(0.0)
    elif how == "exp":
        weights = torch.exp(sharpness * (raw - raw.amax(-1, keepdim=True)))
    else:
        weights = raw
    if normalise:
        weights = _mean_one(weights)
    if clip is not None:
        weights = torch.minimum(weights, torch.as_tensor(clip, dtype=raw.dtype, device=raw.device))
        if renormalise:
            weights = _mean_one(weights)
    return weights


def _mean_one(weights: Tensor) -> Tensor:
    """w / mean(w); a mean of zero or below (all-zero relu, wild linear) gives zeros, never NaN."""
    mean = weights.mean(-1, keepdim=True)
    usable = mean > torch.finfo(weights.dtype).tiny
    return torch.where(usable, weights / torch.where(usable, mean, 1.0), 0.0)


def chi_square(weights: Tensor) -> Tensor:
    """E_ρ[(w − 1)²] = χ²(d^{π_z} ‖ ρ), ``[...]``."""
    return (weights - 1.0).square().mean(-1)


def effective_sample_size(weights: Tensor) -> Tensor:
    """(Σw)² / (N Σw²) ∈ (0, 1]: the share of the sample that carries the estimate, ``[...]``."""
    squares = weights.square().mean(-1)
    return weights.mean(-1).square() / squares.clamp_min(torch.finfo(weights.dtype).tiny)


def diagnose(raw: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """How far a ratio can be trusted, per latent.

    ``mean_ratio`` should be 1, ``negative_share`` 0, ``ess`` not tiny.
    """
    return {
        "mean_ratio": raw.mean(-1),
        "negative_share": (raw < 0).to(raw.dtype).mean(-1),
        "ess": effective_sample_size(weights),
        "chi_square": chi_square(weights),
    }
