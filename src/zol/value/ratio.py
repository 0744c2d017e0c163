r"""The value of a latent by importance sampling with the model's own density ratio.

    J(z) = Σ_i w_i r_i / Σ_i w_i,      w = max(w_z, 0),   w_z = the density ratio of π_z      (zol.measure)

The standard error is the delta method's, √Σw²(r − J)² / Σw: it grows as the effective sample shrinks.
"""

from torch import Tensor

from zol import measure, prompt
from zol.value.base import Estimator, ValueEstimate, ValueProblem


def by_ratio(problem: ValueProblem, z: Tensor, shaping: measure.Shaping = "relu") -> ValueEstimate:
    """Self-normalised importance sampling for latents ``[K, d]``."""
    model, evidence = problem.model, problem.evidence
    features = prompt.backward_features(model, evidence.obs)
    raw = measure.raw_ratio(model, measure.forward_mean(model, evidence.starts, z), features)
    w = measure.shape_weights(raw, shaping)  # [K, N], mean one unless nothing is positive
    r, exponent = prompt.ordinary_scale(evidence.rewards)  # [T, N]; squares must not overflow
    n, square = w.shape[-1], w.square()
    mean = w @ r.mT / n
    # Σ w² (r − J)², multiplied out so that [K, T, N] is never held in memory.
    spread = (
        square @ r.square().mT - 2 * mean * (square @ r.mT) + mean.square() * square.sum(-1, keepdim=True)
    )
    error = prompt.scaled(spread.clamp_min(0).sqrt().mT / n, exponent).mT
    mean = prompt.scaled(mean.mT, exponent).mT
    return ValueEstimate(
        measure.next_state_return(model, mean, problem.start_rewards.mean(-1)),
        measure.next_state_return(model, error, error.new_zeros(())),  # the conversion is linear
        measure.diagnose(raw, w),
        weights=w,
    )


ESTIMATOR = Estimator(
    by_ratio,
    formula="Σwr/Σw with the density ratio w of π_z",
    interval="the sampled states",
    cost="one pass of F over K × start states, and a K × N product",
)
