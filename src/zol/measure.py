r"""From the successor measure to ratios, values and Bellman equations, whatever convention a model follows.

For any policy π_z the discounted occupancy is the average of its successor measure over start states, so its
density with respect to the data can be read off a pretrained model (paper, boxed equation):

    μ(z)   = E_{s0}[ F(s0, π_z(s0), z) ]                                          :func:`forward_mean`
    w_z(s) = d^{π_z}(s) / ρ(s)  =  (1 − γ) μ(z)ᵀ B(s)                              :func:`raw_ratio`
    E_ρ[w_z] = 1,   E_ρ[w_z r] = (1 − γ) E Σ_t γ^t r(s_{t+1}) = J(π_z)

Approximate models give ratios that are noisy and sometimes negative: :func:`shape_weights` makes them
positive, of mean one, and bounded.

**Conventions.** A model may have learned another successor measure than the one above; ``model.measure`` says
which. This file is the only one that reads it. In all of them the density of the future of (s, a) is

    w(s, a, s') = c · F(s, a, z)ᵀB(s') + o        c = 1 if ``normalised``, else 1 − γ;   o = ``offset``

so that everything else follows from c, o and from the state that the sum over time begins with:

    mean reward       J^b(s, a) = E_ρ[w r] = c · FᵀE_ρ[B r] + o · E_ρ[r]           :func:`discounted_return`
    begins            J^current = (1 − γ) r(s) + γ J^next                          :func:`next_state_return`
    Bellman equation  w(s, a, ·) = (1 − γ) δ_first / ρ + γ E[w(s', π_z(s'), ·)]    :func:`bellman_residual`

where "first" is s' for sums that begin with the next state and s for those that begin with the current one.
Results are always those of next states, J^next: the return counts rewards from s_1 on.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from zol.models.base import Model, centres_features

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


def ratio_at_zero(model: Model) -> float:
    """What the ratio is where F·B is zero: the constant that centred features cannot express."""
    return model.measure.offset


def counts_current_state(model: Model) -> bool:
    """Whether the model's sum over time begins with the current state s_t, and so counts its reward too."""
    return model.measure.begins == "current"


def next_state_return(model: Model, estimate: Tensor, start_reward: Tensor) -> Tensor:
    """The normalised return from s_1 on, whatever state the model's sum begins with.

    ``start_reward`` is r(s0), or its mean over start states; only models whose sum begins with the current
    state need it: J^next = (J^current − (1 − γ) r(s0)) / γ.
    """
    if not counts_current_state(model):
        return estimate
    return (estimate - (1.0 - model.discount) * start_reward) / model.discount


def discounted_return(
    model: Model,
    product: Tensor,
    mean_reward: Tensor | float = 0.0,
    reward_here: Tensor | float = 0.0,
    *,
    normalised: bool,
) -> Tensor:
    """E Σ_t γ^t r(s_{t+1}) from FᵀE_ρ[B r], element by element; times 1 − γ if ``normalised``.

    ``mean_reward`` is E_ρ[r], which centred models cannot see in B; ``reward_here`` is r(s) of the state that
    F was evaluated in, which models whose sum begins with the current state count as well.
    """
    unit = 1.0 if normalised else 1.0 - model.discount
    value = model.measure.scale(model.discount) / unit * product
    if model.measure.offset:
        value = value + model.measure.offset / unit * mean_reward
    return next_state_return(model, value, torch.as_tensor(reward_here) / unit)


def action_value(
    model: Model,
    F: Tensor,
    moment: Tensor,
    mean_reward: Tensor | float = 0.0,
    reward_here: Tensor | float = 0.0,
) -> Tensor:
    """Q(s, a) = E Σ_t γ^t r(s_{t+1}) of every member ``[P, ...]``, from F ``[P, ..., d]`` and E_ρ[B r].

    The moment E_ρ[B r] is not projected, and not whitened either: M = FᵀB ρ makes Q = Fᵀ E_ρ[B r] for any B.
    ``mean_reward`` and ``reward_here`` are as in :func:`discounted_return`; without them Q is right up to a
    constant that no action changes.
    """
    mean = discounted_return(model, (F * moment).sum(-1), mean_reward, reward_here, normalised=True)
    return mean / (1.0 - model.discount)


def value_features(model: Model, F: Tensor, here: Tensor) -> Tensor:
    """φ(s, a) ``[..., m]``: features in whose span the model's own action values lie, for any reward.

    They are [F, 1], the one being there for centred models and for the mass of a ratio. Sums that begin with
    the current state count its reward as well, so that φ = [F, φ_r(s), 1] with the regressors φ_r(s) of
    rewards, ``here`` ``[..., d]``. ``F`` is F(s, a, z) ``[..., d]``. The model's own weights are
    :func:`own_value_weights`.
    """
    one = F.new_ones(1).expand(*F.shape[:-1], 1)
    if not counts_current_state(model):
        return torch.cat([F, one], dim=-1)
    return torch.cat([F, here.expand(*F.shape[:-1], -1), one], dim=-1)


def own_value_weights(model: Model, moment: Tensor, weights: Tensor, mean_reward: Tensor) -> Tensor:
    """ξ ``[T, m]`` with (1 − γ) Q(s, a) = φ(s, a)ᵀξ: :func:`discounted_return` in :func:`value_features`.

    From E_ρ[B r] ``[T, d]``, the regression weights u ``[T, d]`` of the rewards and E_ρ[r] ``[T]``.
    """
    product = model.measure.scale(model.discount) * moment
    constant = (model.measure.offset * mean_reward).unsqueeze(-1).to(moment.dtype)
    if not counts_current_state(model):
        return torch.cat([product, constant], dim=-1)
    here = -(1.0 - model.discount) * weights  # o·E[r] of r̂(s) is already right: (1 − (1 − γ))/γ = 1
    return torch.cat([product / model.discount, here / model.discount, constant], dim=-1)


def predicted_reward(model: Model, features: Tensor, weights: Tensor, unseen: Tensor) -> Tensor:
    """r̂(s) = φ(s)ᵀu ``[...]``, for regressors φ(s) ``[..., d]`` and weights u = argmin_u E_ρ[(r − φᵀu)²].

    It is the reward whose value the model's own is. A centred measure's value counts the mean reward E_ρ[r]
    once, and nothing of what features say beside it on average, E_ρ[φ]ᵀu: ``unseen`` is their difference
    (:func:`unseen_reward`), and is added for such models.
    """
    seen = (features * weights).sum(-1)
    return seen + model.measure.offset * unseen


def mean_features(model: Model, mean: Tensor) -> Tensor:
    """E_ρ[φ] ``[d]`` of a sample as the model's F counts it: 0 if the model subtracts a mean itself."""
    return torch.zeros_like(mean) if centres_features(model) else mean


def unseen_reward(model: Model, mean_reward: Tensor, weights: Tensor, mean: Tensor) -> Tensor:
    """E_ρ[r] − E_ρ[φ]ᵀu ``[T]``, from mean rewards ``[T]``, weights ``[T, d]`` and E_ρ[φ] ``[d]``."""
    return mean_reward - weights @ mean_features(model, mean)


def first_state(model: Model, obs: Tensor, next_obs: Tensor) -> Tensor:
    """The first state that the measure of a transition (s, a, s') counts: s' for most models, or s."""
    return obs if counts_current_state(model) else next_obs


def bellman_residual(
    model: Model, F: Tensor, next_F: Tensor, first: Tensor, features: Tensor, discount: Tensor
) -> tuple[Tensor, Tensor]:
    r"""How well F follows its Bellman equation on N transitions: relative residual (→ 0) and mass (→ 1).

    The equation w = (1 − γ) δ_first/ρ + γ w', integrated against B ρ and divided by c, is

        ε_i = C (F_i − γ_i F'_i) − k B(first_i) + o (1 − γ_i)/c · E_ρ[B] = 0,     C = E_ρ[BBᵀ],  k = (1 − γ)/c

    where C F are the successor features of B, in units of k. The residual is √(E‖ε‖² / E‖C F‖²). Integrated
    against ρ alone, the equation says that one step of the future has mass one,

        mass = mean_{i≠j} ( (F_i − γ_i F'_i)ᵀB_j / k + o (1 − γ_i)/(1 − γ) ) = 1.

    ``F`` and ``next_F`` are F(s, a, z) and F(s', π_z(s'), z) ``[N, d]``, ``first`` is B of
    :func:`first_state` ``[N, d]``, ``features`` is B of the sample that stands for ρ ``[N, d]``, and
    ``discount`` is γ_i ``[N]``, zero where an episode ended.
    """
    n, c, o = len(features), model.measure.scale(model.discount), model.measure.offset
    k = (1.0 - model.discount) / c
    C = features.mT @ features / n
    change = F - discount.unsqueeze(-1) * next_F  # [N, d]
    error = change @ C - k * first
    # Pairs i ≠ j: a state says nothing about the measure of the transition it belongs to.
    mass = (change.sum(0) @ features.sum(0) - (change * features).sum()) / (n * (n - 1)) / k
    if o:
        error = error + o / c * (1.0 - discount).unsqueeze(-1) * features.mean(0)
        mass = mass + o * (1.0 - discount).mean() / (1.0 - model.discount)
    residual = (error.square().sum() / (F @ C).square().sum().clamp_min(1e-12)).sqrt()
    return residual, mass


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
