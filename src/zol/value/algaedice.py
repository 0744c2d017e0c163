r"""AlgaeDICE (Nachum, Dai, Kostrikov, Chow, Li, Schuurmans, 2019): policies that stay near the data.

    max_π min_ν  (1 − γ) E_0[ν(s0, π(s0))] + α E_β[ f*((r + γ'ν(s', π(s')) − ν(s, a))/α) ],       f*(y) = y²/2

The inner minimum is J(π) − (α/2) E_β[w²], the return less a χ² distance from the data, and the advantage
(r + γ'ν' − ν)/α is the ratio w.

For a fixed latent the inner problem is an estimator of its ratio, here by the saddle point of
:mod:`zol.value.dice` with the reward in it (α = κ = 1): ``algaedice``. The outer problem looks for the best
latent; in the span of the model's features the inner one has a closed form, :func:`regularised_value`, whose
gradient in z is the policy gradient.
"""

import torch
from torch import Tensor

from zol.value.base import Estimator, ValueProblem
from zol.value.dice import DICESettings, by_dice
from zol.value.lstd import value_features
from zol.value.steps import Steps


def regularised_value(problem: ValueProblem, z: Tensor, alpha: float) -> Tensor:
    """min_ν of latents ``[K, d]`` for every task, ``[K, T]``, with ν in the span of the model's features."""
    steps = Steps.of(problem, z)
    features = value_features(problem.model, steps, z)
    return inner_minimum(*features, steps.discount, steps.rewards, steps.gamma, alpha)


def inner_minimum(
    phi: Tensor,
    following: Tensor,
    start: Tensor,
    discount: Tensor,
    rewards: Tensor,
    gamma: float,
    alpha: float,
) -> Tensor:
    r"""min_x (1 − γ) b·x + E_β[(r − (φ − γ'φ')ᵀx)²] / 2α for rewards ``[T, N]``, ``[K, T]``; differentiable.

    With D = φ − γ'φ' the minimum is at E[D Dᵀ] x = E[D r] − α (1 − γ) b. Features are those of
    :func:`zol.value.lstd.value_features`. Squares are of single transitions, as in DualDICE's convex form:
    with chance in the world the minimum is an upper bound.
    """
    D, r = phi - discount.double().unsqueeze(-1) * following, rewards.double()
    n, b = D.shape[-2], start.mean(-2)
    right = (r @ D / n) - alpha * (1.0 - gamma) * b.unsqueeze(-2)  # [K, T, m]
    x = right @ torch.linalg.pinv(D.mT @ D / n, hermitian=True, rtol=1e-12)
    advantage = r - x @ D.mT  # [K, T, N]
    return (1.0 - gamma) * (x @ b.unsqueeze(-1)).squeeze(-1) + advantage.square().mean(-1) / (2.0 * alpha)


ESTIMATOR = Estimator(
    by_dice,
    formula="Σζr/Σζ, ζ by AlgaeDICE's saddle point at π_z",
    interval="transitions and ensemble members",
    cost="four small networks per latent and task, trained for 200 steps",
    needs_transitions=True,
    settings=DICESettings(alpha=1.0, reward=True),
)
