r"""HILP's two other prompts: what a step changes in the features, and the direction to a goal.

HILP's policies go in directions: π_z moves so that φ changes along z (Park et al. 2024). Rewards of one step,

    r ≈ (φ(s') − φ(s))ᵀz          method ``differences``: least squares on the sampled transitions

are an alternative to the regression on centred features φ(s'), which is the default of these models. Both
prompts suit the same policies: with ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}) the differences sum to

    E Σ_t γ^t (φ(s_{t+1}) − φ(s_t))  =  (1 − γ) ψ(s, a, z) − φ(s),

and φ(s) does not depend on the action, so that argmax_a ψᵀz is the greedy action of both. A goal g asks for

    z_t = Π(φ(g) − φ(s_t))        method ``towards``: taken anew in every state

which is a policy rather than a latent. The goal is the task's own; a task without one is given the sampled
state with the largest reward. Both methods work with the features of any model (B itself for FB), but only
distances in time give directions a meaning.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol import prompt
from zol.adapt.problem import Behaviour, Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import score
from zol.common.errors import DataError
from zol.models.base import Model


def differences(problem: Problem, settings: NoSettings) -> Adapted:
    """The latent of every task by least squares on what transitions change in the features."""
    evidence = problem.evidence
    if evidence.before is None:
        raise DataError(
            "differences of features need whole transitions, and this sample holds only the states they lead "
            "to: give data (zol.load(path, data=…)), or save the checkpoint again with this version"
        )
    z = prompt.differences(problem.model, evidence.before, evidence.obs, evidence.rewards)
    return replace(score(problem.model, evidence, z), method="differences", configs=({},))


@dataclass(frozen=True)
class Towards:
    """The policies of T tasks that head for one goal each; called with observations ``[T, E, D]``."""

    model: Model
    goals: Tensor  # [T, D]

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        z = prompt.towards(self.model, obs, self.goals.unsqueeze(1).expand_as(obs))
        return self.model.act(obs, z)


def goals_of(problem: Problem) -> Tensor:
    """The goal states of the tasks ``[T, D]``; of one that names none, the sampled state that pays most."""
    evidence = problem.evidence
    paid_most = evidence.obs[evidence.rewards.argmax(-1)]  # [T, D]
    return torch.stack(
        [
            best if task.goal is None else task.goal.to(best)
            for task, best in zip(problem.ordered_tasks, paid_most, strict=True)
        ]
    )


def towards(problem: Problem, settings: NoSettings) -> Behaviour:
    """A policy per task that always moves towards its goal; its latent is the way from the start states."""
    model, evidence, goals = problem.model, problem.evidence, goals_of(problem)
    start = evidence.starts.to(goals).mean(0).expand_as(goals)
    found = score(model, evidence, prompt.towards(model, start, goals))
    return Behaviour(replace(found, method="towards", configs=({},)), Towards(model, goals))


DIFFERENCES = Method(differences, NoSettings())
TOWARDS = Method(towards, NoSettings(), single_latent=False)
