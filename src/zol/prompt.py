r"""Closed-form latents: from a reward, a goal or a motion to z, in one pass over a sample.

    reward, correlation   z = Π( E[B(s) r(s)] )
    reward, ridge         z = Π( (E[B Bᵀ] + λI)⁻¹ E[B r] )        least squares r ≈ Bᵀz, whitened
    reward, least squares z = Π( argmin_z E[(r − φᵀz)²] )          ridge with λ = 0; how successor-feature
                                                                   models (HILP, TD-JEPA) are prompted
    reward, features      z = Π( E[φ(s) r(s)] )                    where goals in training are φ(s) (TD-JEPA)
    reward, weighted      z = Π( E[softmax_N(β r) · B r] )         the high-reward states count most
    reward, differences   z = Π( argmin_z E[(r − (φ(s') − φ(s))ᵀz)²] )   the original HILP's other convention
    goal                  z = Π( B(g) )
    towards a goal        z_t = Π( φ(g) − φ(s_t) )                 HILP: a direction, taken anew every step
    tracking              z_t = Π( mean_{k<window} B(s_{t+1+k}) )

φ is what rewards are regressed on: ``model.regressors`` where a model has features that are not its B,
and B itself otherwise.

Latents do not depend on the unit of the reward: rewards of extreme size are divided by a power of two, which
changes no digit, before they could overflow or vanish (:func:`ordinary_scale`). Weighted prompts alone know a
unit, that of 1/β.

Samples are read in chunks, so that 10 million states need no more memory than one chunk; tasks are
rows, so that many rewards cost one pass over B.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from zol import measure
from zol.common.errors import DataError
from zol.models.base import Model, regressors_of

RewardPrompt = Literal["correlation", "ridge", "least_squares", "features", "weighted"]

CHUNK = 65536
ORDINARY = 20  # rewards of at most 2^±20 are used as they are


def reward(
    model: Model,
    obs: Tensor,
    rewards: Tensor,
    how: RewardPrompt = "correlation",
    *,
    ridge: float = 1e-2,
    temperature: float = 10.0,
    centre: bool = False,
    chunk: int = CHUNK,
) -> Tensor:
    """Latents ``[T, d]`` for rewards ``[T, N]`` of sampled next states ``[N, D]`` (``[d]`` for ``[N]``).

    ``ridge`` is λ relative to the mean eigenvalue of E[BBᵀ]; ``temperature`` is β; ``centre`` subtracts
    each task's mean reward first (without it, a constant added to the reward moves z towards E[B]).

    A reward that is zero everywhere (or constant, when centred) says nothing about what is wanted, and
    is refused. NaN or infinite rewards are refused.
    """
    table = rewards if rewards.ndim == 2 else rewards.unsqueeze(0)
    _check(model, obs, table)
    table, exponent = ordinary_scale(table)
    if centre:
        table = table - table.mean(-1, keepdim=True)
    unrewarded = (table.abs().amax(-1) == 0).nonzero().flatten().tolist()
    if unrewarded:
        raise DataError(
            f"the reward of task {unrewarded[0]} is {'constant' if centre else 'zero'} on all "
            f"{table.shape[1]} sampled states, so it cannot say which latent is wanted: sample more states, "
            "or check the reward"
        )
    if how == "weighted":
        table = _soft_maximum(temperature, scaled(table, exponent)) * table * table.shape[1]
    regress = how in ("ridge", "least_squares", "features")
    moment, covariance, _ = _moments(model, obs, table, chunk, regress=regress)
    if how == "ridge":
        d = covariance.shape[0]
        lam = ridge * covariance.diagonal().mean()
        whitening = covariance + lam * torch.eye(d, dtype=covariance.dtype, device=covariance.device)
        moment = torch.linalg.solve(whitening, moment, left=False)
    elif how == "least_squares":  # of least norm where features are redundant: the limit λ → 0 of ridge
        moment = moment @ _pseudo_inverse(covariance)
    z = _projected(model, moment, exponent, obs.dtype)
    return z if rewards.ndim == 2 else z[0]


@dataclass(frozen=True)
class RewardMoments:
    """What values need to know about T rewards instead of latents: the scale of rewards is still in them."""

    moment: Tensor  # v = E[B r], [T, d], not projected
    weights: Tensor  # u = argmin_u E[(r − φᵀu)²], [T, d]
    mean: Tensor  # E[r], [T]
    unseen: Tensor  # E[r] − E[φ]ᵀu, [T]: what a centred measure adds to φᵀu (zol.measure.predicted_reward)


def reward_moments(model: Model, obs: Tensor, rewards: Tensor, *, chunk: int = CHUNK) -> RewardMoments:
    """E[B r], least-squares weights of the reward and E[r], of rewards ``[T, N]`` of states ``[N, D]``."""
    _check(model, obs, rewards)
    table, exponent = ordinary_scale(rewards)
    moment, *_ = _moments(model, obs, table, chunk, regress=False)
    crossed, covariance, features = _moments(model, obs, table, chunk, regress=True)
    weights, mean = crossed @ _pseudo_inverse(covariance), table.mean(-1)
    unseen = measure.unseen_reward(model, mean, weights.to(mean.dtype), features.to(mean.dtype))
    return RewardMoments(
        scaled(moment, exponent).to(obs.dtype),
        scaled(weights, exponent).to(obs.dtype),
        scaled(mean, exponent),
        scaled(unseen, exponent),
    )


def ordinary_scale(rewards: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards ``[T, N]`` whose squares neither overflow nor vanish, and exponents e ``[T]``: r = 2^e · given.

    Rewards of ordinary size are given back as they are, with e = 0; others are brought to at most one.
    """
    values = rewards if rewards.is_floating_point() else rewards.double()
    exponent = torch.frexp(values.abs().amax(-1).double()).exponent
    exponent = torch.where(exponent.abs() > ORDINARY, exponent, 0)
    return scaled(values, -exponent), exponent


def scaled(values: Tensor, exponent: Tensor) -> Tensor:
    """2^e · values ``[T, …]`` for exponents e ``[T]``: the same digits, at another place."""
    if not bool(exponent.any()):
        return values
    by: list[int] = exponent.tolist()
    halves = [[math.ldexp(1.0, e // 2), math.ldexp(1.0, e - e // 2)] for e in by]  # 2^1074 is no number
    factors = torch.tensor(halves, dtype=torch.float64, device=values.device)
    first, second = factors.reshape(len(by), 2, *[1] * (values.ndim - 1)).unbind(1)
    return (values.double() * first * second).to(values.dtype)


def _soft_maximum(temperature: float, table: Tensor) -> Tensor:
    """softmax(β r), also where β r is too large for a number."""
    logits = temperature * table
    if not bool(torch.isfinite(logits).all()):
        table = table.double()
        logits = temperature * (table - table.amax(-1, keepdim=True))
    return torch.softmax(logits, dim=-1)


@torch.no_grad()
def start_rewards(model: Model, obs: Tensor, rewards: Tensor, starts: Tensor) -> Tensor:
    """r(s0) of start states ``[S, D]``, ``[T, S]``; zero where the model's measure does not count s0.

    It is predicted from the model's features, r̂(s0) = φ(s0)ᵀu, with weights u fitted to the rewards
    ``[T, N]`` of the sample ``[N, D]``: start states come without the action or the simulator state that some
    rewards ask for. Its weight in a normalised return is 1 − γ (:func:`zol.measure.next_state_return`).
    """
    if not measure.counts_current_state(model):
        return rewards.new_zeros(len(rewards), len(starts))
    found = reward_moments(model, obs, rewards)
    phi = regressors(model)(starts)  # [S, d]
    weights, unseen = found.weights.unsqueeze(1).to(phi.dtype), found.unseen.unsqueeze(1).to(phi.dtype)
    return measure.predicted_reward(model, phi, weights, unseen)


def differences(model: Model, before: Tensor, obs: Tensor, rewards: Tensor, *, chunk: int = CHUNK) -> Tensor:
    """Latents ``[T, d]`` by least squares of rewards ``[T, N]`` on what steps change in the features.

    Transitions lead from ``before`` to ``obs``, both ``[N, D]``. Rewards that no step explains, because
    features stay as they are or the rewards are zero, are refused.
    """
    _check(model, obs, rewards)
    _check_obs(model, before)
    if len(before) != len(obs):
        raise DataError(
            f"transitions begin in {len(before)} states and lead to {len(obs)}: expected one each"
        )
    table, exponent = ordinary_scale(rewards)
    phi, d = regressors(model), model.z_dim
    moment = torch.zeros(len(table), d, dtype=torch.float64, device=obs.device)
    covariance = torch.zeros(d, d, dtype=torch.float64, device=obs.device)
    with torch.no_grad():
        parts = zip(before.split(chunk), obs.split(chunk), table.split(chunk, dim=1), strict=True)
        for begin, end, values in parts:
            change = phi(end).double() - phi(begin).double()
            moment += values.double() @ change
            covariance += change.mT @ change
    weights = moment @ _pseudo_inverse(covariance)
    if bool((weights.abs().amax(-1) == 0).any()):
        raise DataError("a reward cannot be explained by changes of the features: use another prompt")
    return _projected(model, weights, exponent, obs.dtype)


def goal(model: Model, obs: Tensor) -> Tensor:
    """Latents ``[..., d]`` that reach the states ``[..., D]``."""
    _check_obs(model, obs)
    with torch.no_grad():
        return model.project(model.backward(obs))


def towards(model: Model, obs: Tensor, goals: Tensor) -> Tensor:
    """Latents ``[..., d]`` that lead from the states ``[..., D]`` straight to the goals ``[..., D]``.

    For HILP, whose φ puts states at distances of their travel time; recompute it as the state changes.
    """
    _check_obs(model, obs)
    _check_obs(model, goals)
    phi = regressors(model)
    with torch.no_grad():
        return model.project(phi(goals) - phi(obs))


def tracking(model: Model, motion: Tensor, window: int = 8) -> Tensor:
    """Latents ``[L − 1, d]`` that follow a motion ``[L, D]``: one per step, looking ``window`` frames ahead.

    Step t averages B over frames t + 1 … t + window; the window is cut at the end of the motion.
    """
    _check_obs(model, motion)
    if motion.ndim != 2 or len(motion) < 2:
        raise DataError(f"a motion has shape [frames ≥ 2, {model.obs_dim}], got {tuple(motion.shape)}")
    if window < 1:
        raise DataError(f"a tracking window has at least one frame, got {window}")
    with torch.no_grad():
        features = model.backward(motion[1:]).double()  # sums of long motions must not lose digits
        total = torch.cat([torch.zeros_like(features[:1]), features]).cumsum(0)
        begin = torch.arange(len(features), device=motion.device)
        end = (begin + window).clamp_max(len(features))
        mean = (total[end] - total[begin]) / (end - begin).unsqueeze(-1)
        return model.project(mean.to(motion.dtype))


def regressors(model: Model) -> Callable[[Tensor], Tensor]:
    """φ: the features in which the model's rewards are linear, r ≈ φᵀz."""
    return regressors_of(model)


def backward_features(model: Model, obs: Tensor, chunk: int = CHUNK) -> Tensor:
    """B of all sampled states ``[N, d]``, computed in chunks without gradients."""
    _check_obs(model, obs)
    with torch.no_grad():
        return torch.cat([model.backward(part) for part in obs.split(chunk)])


def _moments(
    model: Model, obs: Tensor, table: Tensor, chunk: int, *, regress: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """E[r B] ``[T, d]``, or with ``regress`` E[r φ], E[φ φᵀ] ``[d, d]`` and E[φ] ``[d]``.

    They are accumulated in float64, so that chunking cannot show.
    """
    embed = regressors(model) if regress else model.backward
    d, n = model.z_dim, len(obs)
    moment = torch.zeros(len(table), d, dtype=torch.float64, device=obs.device)
    covariance = torch.zeros(d, d, dtype=torch.float64, device=obs.device)
    mean = torch.zeros(d, dtype=torch.float64, device=obs.device)
    with torch.no_grad():
        for states, values in zip(obs.split(chunk), table.split(chunk, dim=1), strict=True):
            B = embed(states).double()
            moment += values.double() @ B
            if regress:
                covariance += B.mT @ B
                mean += B.sum(0)
    return moment / n, covariance / n, mean / n


def _projected(model: Model, moment: Tensor, exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """Π(z), in the unit of the rewards where latents have a length."""
    z = model.project(moment.to(dtype))
    if bool(exponent.any()) and not torch.equal(z, model.project((2 * moment).to(dtype))):
        return model.project(scaled(moment, exponent).to(dtype))
    return z


def _pseudo_inverse(covariance: Tensor) -> Tensor:
    return torch.linalg.pinv(covariance, rtol=1e-10, hermitian=True)


def _check_obs(model: Model, obs: Tensor) -> None:
    if obs.shape[-1] != model.obs_dim:
        raise DataError(
            f"these states have {obs.shape[-1]} columns, the model was trained on {model.obs_dim}: "
            "were they recorded in the model's world?"
        )


def _check(model: Model, obs: Tensor, table: Tensor) -> None:
    _check_obs(model, obs)
    if obs.ndim != 2 or len(obs) == 0:
        raise DataError(f"a sample of states has shape [N ≥ 1, {model.obs_dim}], got {tuple(obs.shape)}")
    if table.ndim != 2 or table.shape[1] != len(obs):
        raise DataError(
            f"rewards of shape {tuple(table.shape)} do not fit {len(obs)} states: expected [N] or [tasks, N]"
        )
    if table.is_complex():
        raise DataError(f"rewards are real numbers, got {table.dtype}: take .real or .abs() of them")
    bad = ~torch.isfinite(table)
    if bool(bad.any()):
        task, state = bad.nonzero()[0].tolist()
        raise DataError(
            f"{int(bad.sum())} rewards are NaN or infinite, the first of task {task} at sampled state {state}"
        )
