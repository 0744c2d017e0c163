r"""π_z or another policy? For every task the one that earns more beyond doubt, by two accounts of π_z.

Both are played by every member of the dynamics ensemble from the same start states (zol.imagination), and the
model's own density ratio says a second time what π_z earns. The other policy is taken where

    J_other − J_{π_z} > 1.96 · error       both in the learned world, paired by members and starts
    J_other − J_w     > 1.96 · error       J_w = E_ρ[w_z r], what π_z earns by its ratio (zol.adapt.zol.score)

each error that of its own difference. A policy that is better on some tasks and worse on others is of little
use to somebody who cannot test it, and this is the test that needs no environment. The second line is there
for rewards that the learned world hardly sees: where it imagines next to nothing under either policy, their
difference may well be significant, and says nothing. The ratio knows no learned world, so that one account
corrects the other. Without a learned world there is no test, and the other policy is taken always.
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
TWO_ACCOUNTS = "the learned world alone decided whether π_z acts; now the density ratio must agree"
"""What became of methods that ask here, in their revision 2"""

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
def imagined(problem: Problem, policy: Policy) -> tuple[Tensor, Tensor]:
    """What a policy and π_z earn per step in the learned world, by members and starts: ``[T, P, S]`` each."""
    learned, tasks = problem.learned_world(), len(problem.tasks)
    own = torch.arange(tasks)

    def earned(model: Any) -> Tensor:
        rollouts = ImaginedRollouts(
            model, learned.dynamics, problem.layout, problem.ordered_tasks, learned.starts[:STARTS], HORIZON
        )
        parts = rollouts.together(problem.start, problem.generator("imagined choice"))  # [T, P, T, S]
        return parts[own, :, own]

    return earned(_Acting(problem.model, policy)), earned(problem.model)


def mean_and_error(values: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of values ``[T, P, S]`` over members and starts, and its standard error, ``[T]`` each."""
    by_member, by_start = values.mean(-1), values.mean(1)
    members, count = by_member.shape[1], by_start.shape[1]
    variance = by_start.var(-1) / count
    if members > 1:
        variance = variance + by_member.var(-1) / members
    return values.mean((1, 2)), variance.sqrt()


def chosen(problem: Problem, found: Adapted, policy: Policy) -> Behaviour:
    """The policy where it earns more than π_z by both accounts, π_z elsewhere; the policy without a test.

    ``found`` are π_z's latents with the ratio's estimates.
    """
    if problem.dynamics is None:
        return Behaviour(found, policy)
    other, plain = imagined(problem, policy)
    gain, error = mean_and_error(other - plain)
    excess, doubt = mean_and_error(other - found.estimate[0].to(other.dtype)[:, None, None])
    use = (gain > Z95 * error) & (excess > Z95 * doubt)
    told = {
        "imagined": torch.where(use, other.mean((1, 2)), plain.mean((1, 2))),
        "imagined_gain": gain,
        "imagined_error": error,
        "excess": excess,
        "changed": use,
    }
    told = {name: value.double().unsqueeze(0) for name, value in told.items()}
    z = problem.start.unsqueeze(1)
    rule = Either(lambda obs: problem.model.act(obs, z), policy, use)
    return Behaviour(replace(found, diagnostics=dict(found.diagnostics) | told), rule)
