r"""π_z or another policy? For every task the one that earns more in the learned world, if beyond doubt.

Both are played by every member of the dynamics ensemble from the same start states (zol.imagination):

    gain = mean over members and starts of (J_other − J_{π_z}),     other is taken where gain > 1.96 · error

A policy that is better on some tasks and worse on others is of little use to somebody who cannot test it.
This is the test that needs no environment. Without a learned world there is none, and the other policy is
taken always.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from zol.adapt.problem import Behaviour, Problem
from zol.adapt.result import Adapted
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import Model
from zol.value.base import Z95
from zol.value.imagination import HORIZON

STARTS = 16

Policy = Callable[[Tensor], Tensor]
"""Actions ``[T, E, A]`` of T tasks for observations ``[T, E, D]``"""


@dataclass(frozen=True)
class _Acting:
    """A model whose policies are replaced; the rest of it is the model's own."""

    model: Model
    policy: Policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """Observations of members, tasks and starts ``[P, T, S, D] → [P, T, S, A]``, whatever z says."""
        members, tasks, starts, _ = obs.shape
        action = self.policy(obs.transpose(0, 1).reshape(tasks, members * starts, -1))
        return action.reshape(tasks, members, starts, -1).transpose(0, 1)


@dataclass(frozen=True)
class Either:
    """One of two policies for every task; called with observations ``[T, E, D]`` like any other."""

    first: Policy
    second: Policy
    use_second: Tensor  # [T] bool

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        if not bool(self.use_second.any()):
            return self.first(obs)
        if bool(self.use_second.all()):
            return self.second(obs)
        return torch.where(self.use_second[:, None, None], self.second(obs), self.first(obs))


@torch.no_grad()
def imagined_gain(problem: Problem, policy: Policy) -> tuple[Tensor, Tensor]:
    """What a policy earns more per step than π_z in the learned world, and its error, ``[T]`` each."""
    learned, tasks = problem.learned_world(), len(problem.tasks)
    starts = learned.starts[:STARTS]
    own = torch.arange(tasks)

    def values(model: Any) -> Tensor:
        rollouts = ImaginedRollouts(
            model, learned.dynamics, problem.layout, problem.ordered_tasks, starts, HORIZON
        )
        parts = rollouts.together(problem.start, problem.generator("imagined choice"))  # [T, P, T, S]
        return parts[own, :, own]

    gain = values(_Acting(problem.model, policy)) - values(problem.model)  # [T, P, S]
    by_member, by_start = gain.mean(-1), gain.mean(1)
    members, count = by_member.shape[1], by_start.shape[1]
    variance = by_start.var(-1) / count
    if members > 1:
        variance = variance + by_member.var(-1) / members
    return gain.mean((1, 2)), variance.sqrt()


def chosen(problem: Problem, found: Adapted, policy: Policy) -> Behaviour:
    """The policy where the learned world prefers it, π_z elsewhere; the policy everywhere without one."""
    if problem.dynamics is None:
        return Behaviour(found, policy)
    gain, error = imagined_gain(problem, policy)
    use = gain > Z95 * error
    told = {"imagined_gain": gain, "doubt": error, "changed": use}
    told = {name: value.double().unsqueeze(0) for name, value in told.items()}
    plain = problem.start.unsqueeze(1)
    rule = Either(lambda obs: problem.model.act(obs, plain), policy, use)
    return Behaviour(replace(found, diagnostics=dict(found.diagnostics) | told), rule)
