r"""The value of a latent by playing it in the learned world.

    J(z) = mean over members, start states and steps t < horizon of r(x_{t+1}, π_z(s_t))     (zol.imagination)

It does not use F at all, so that it can disagree with the model's own value. It is a plain mean over a finite
horizon, the scale of an episode's return per step, where the other estimators discount.
"""

from torch import Tensor

from zol.common.errors import CheckpointError
from zol.imagination.rollouts import ImaginedRollouts
from zol.value.base import Estimator, ValueEstimate, ValueProblem, over_members_and_starts

HORIZON, STARTS = 200, 32
EPISODE, EPISODE_STARTS = 1000, 16


def by_imagination(
    problem: ValueProblem, z: Tensor, *, horizon: int = HORIZON, starts: int = STARTS
) -> ValueEstimate:
    """The mean reward of imagined rollouts of latents ``[K, d]`` from the first ``starts`` start states."""
    learned, layout = problem.learned_world, problem.layout
    if learned is None or layout is None:
        raise CheckpointError(f"this estimator needs {ESTIMATOR.missing(problem)}")
    rollouts = ImaginedRollouts(
        problem.model, learned.dynamics, layout, problem.tasks, learned.starts[:starts], horizon
    )
    return over_members_and_starts(rollouts.values(z, problem.random()))


ESTIMATOR = Estimator(
    by_imagination,
    formula="mean reward of imagined rollouts of 200 steps",
    interval="start states and ensemble members",
    cost="K × members × start states × 200 steps of π_z and the learned dynamics",
    needs_learned_world=True,
)


def by_episodes(problem: ValueProblem, z: Tensor) -> ValueEstimate:
    """The same over whole episodes, the horizon of the returns that people ask about."""
    return by_imagination(problem, z, horizon=problem.episode_length or EPISODE, starts=EPISODE_STARTS)


EPISODES = Estimator(
    by_episodes,
    formula="mean reward of imagined rollouts of a whole episode",
    interval="start states and ensemble members",
    cost="K × members × start states × an episode's steps of π_z and the learned dynamics",
    needs_learned_world=True,
)
