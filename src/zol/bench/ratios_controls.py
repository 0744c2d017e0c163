r"""What estimators are compared with: three rows of every table that are no estimators.

data       weighs every state alike: w = 1, J = E_ρ[r]. It knows nothing about latents
exact F    w = E_{d^π}[B]ᵀ C⁻¹ B(s), C = E_ρ[BBᵀ]: the true ratio's projection onto the span of B, and so
           the ratio of a model whose F is exact. All its errors are what B cannot express; what it does
           better than ``ratio`` is F's fault. It has seen the very episodes that it is judged by
rollouts   half of the true episodes, judged on the other half: the noise that nothing can beat
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol import measure, prompt
from zol.bench.occupancy import Projection
from zol.bench.true_behaviour import TrueBehaviour
from zol.value import ValueEstimate, ValueProblem

CONTROLS = DATA, EXACT_F, ROLLOUTS = "data", "exact F", "rollouts"


@dataclass(frozen=True)
class Estimated:
    """What one estimator says about K latents on T tasks; its occupancies if it has weights."""

    value: ValueEstimate  # [K, T]
    occupancy: Tensor | None  # [K, cells]
    seconds: float  # of CPU

    def at(self, rows: Tensor, tasks: int) -> "Estimated":
        """Of some latents, on the first tasks."""
        value = ValueEstimate(self.value.mean[rows, :tasks], self.value.error[rows, :tasks])
        share = len(rows) / len(self.value.mean)
        occupancy = None if self.occupancy is None else self.occupancy[rows]
        return Estimated(value, occupancy, self.seconds * share)


def controls(
    problem: ValueProblem, truth: TrueBehaviour, projection: Projection | None, seconds: float
) -> dict[str, Estimated]:
    """All three by name; ``seconds`` is what the rollouts took."""
    half = truth.discounted[..., : truth.discounted.shape[-1] // 2]
    rollouts = ValueEstimate(half.mean(-1), half.std(-1) / half.shape[-1] ** 0.5)
    return {
        DATA: _data(problem, len(truth.features), projection),
        EXACT_F: _exact(problem, truth.features, projection),
        ROLLOUTS: Estimated(rollouts, truth.occupancy[0] if projection else None, seconds / 2),
    }


def _data(problem: ValueProblem, latents: int, projection: Projection | None) -> Estimated:
    rewards = problem.evidence.rewards
    error = rewards.std(-1) / rewards.shape[-1] ** 0.5
    value = ValueEstimate(rewards.mean(-1).expand(latents, -1), error.expand(latents, -1))
    return Estimated(value, _seen(problem, torch.ones(latents, rewards.shape[-1]), projection), 0.0)


def _exact(problem: ValueProblem, features: Tensor, projection: Projection | None) -> Estimated:
    B = prompt.backward_features(problem.model, problem.evidence.obs).double()
    inverse = torch.linalg.pinv(B.mT @ B / len(B), rtol=1e-10, hermitian=True)
    offset = measure.ratio_at_zero(problem.model)
    if offset:
        features = features - offset * measure.mean_features(problem.model, B.mean(0))
    w = features @ inverse @ B.mT + offset  # [K, N]
    mean = w @ problem.evidence.rewards.double().mT / len(B)
    return Estimated(ValueEstimate(mean, torch.zeros_like(mean)), _seen(problem, w, projection), 0.0)


def _seen(problem: ValueProblem, weights: Tensor, projection: Projection | None) -> Tensor | None:
    if projection is None or problem.layout is None:
        return None
    return projection.histogram(problem.evidence.obs, problem.layout, weights)
