r"""The sample's transitions as K policies would go on from them: what TD and flow equations are written in.

For a transition (s, a, s') of the data, a policy π_z goes on with a' = π_z(s'), weighted by γ' = γ, or by
zero where the episode ended; it begins with a0 = π_z(s0). A function g of states and actions then has

    flow equation    E_β[w(s, a) (g(s, a) − γ' g(s', a'))] = (1 − γ) E_0[g(s0, a0)]        for every g
    Bellman equation Q(s, a) = E[r(s') + γ' Q(s', a')]

where w = d^π/β is the density ratio over states and actions, and both give the same return:

    J = (1 − γ) E Σ_t γ^t r(s_{t+1}) = E_β[w r] = (1 − γ) E_0[Q(s0, a0)].
"""

from dataclasses import dataclass

from torch import Tensor

from zol.common.errors import CheckpointError
from zol.value.base import ValueProblem

TABLE = 8_000_000  # numbers that a table of K latents may have


@dataclass(frozen=True)
class Steps:
    """N transitions, S start states and T rewards, with what K policies do next."""

    obs: Tensor  # s, [N, D]
    action: Tensor  # a, [N, A]
    next_obs: Tensor  # s', [N, D]
    next_action: Tensor  # π_z(s'), [K, N, A]
    starts: Tensor  # s0, [S, D]
    start_action: Tensor  # π_z(s0), [K, S, A]
    discount: Tensor  # γ', [N]
    rewards: Tensor  # r(s'), [T, N]
    gamma: float

    @staticmethod
    def of(problem: ValueProblem, z: Tensor) -> "Steps":
        """The problem's transitions under latents ``[K, d]``; differentiable in z."""
        sample, model = problem.transitions, problem.model
        if sample is None or sample.before is None or sample.action is None or sample.terminated is None:
            raise CheckpointError(
                "this estimator needs whole transitions: gather the evidence from a dataset"
            )
        latents = z.unsqueeze(-2)
        return Steps(
            sample.before,
            sample.action,
            sample.obs,
            model.act(sample.obs, latents),
            sample.starts,
            model.act(sample.starts, latents),
            model.discount * (~sample.terminated).to(sample.obs.dtype),
            sample.rewards,
            model.discount,
        )


def latent_chunks(samples: int, columns: int, z: Tensor) -> tuple[Tensor, ...]:
    """Latents ``[K, d]`` in groups whose tables ``[K, N, columns]`` fit into memory together."""
    return z.split(max(1, TABLE // (samples * columns + 1)))
