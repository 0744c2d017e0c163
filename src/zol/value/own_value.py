r"""The value of a latent by the model's own action value at the start states.

J(z) = (1 − γ) E_{s0} E_P[ F(s0, π_z(s0), z) ]ᵀ E_ρ[B r]          (other conventions: zol.measure)
"""

import torch
from torch import Tensor

from zol import measure
from zol.value.base import Estimator, ValueEstimate, ValueProblem, over_members_and_starts


def by_own_value(problem: ValueProblem, z: Tensor) -> ValueEstimate:
    """The value of π_z at the start states that F gives it, for latents ``[K, d]``."""
    model, starts, moments = problem.model, problem.evidence.starts, problem.moments
    latents = z.unsqueeze(-2)
    F = model.forward(starts, latents, model.act(starts, latents))  # [P, K, S, d]
    values = measure.discounted_return(
        model,
        torch.einsum("pksd,td->pkts", F, moments.moment),
        moments.mean.unsqueeze(-1),  # [T, 1]
        problem.start_rewards,  # [T, S]
        normalised=True,
    )
    return over_members_and_starts(values.transpose(0, 1))


ESTIMATOR = Estimator(
    by_own_value,
    formula="(1−γ) F(s0, π_z(s0), z)ᵀE[B r]",
    interval="start states and ensemble members",
    cost="one pass of F over K × start states",
)
