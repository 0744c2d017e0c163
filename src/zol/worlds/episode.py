"""A policy in a world, step by step: the one loop that rollouts, explorers and films share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.fields import States
from zol.tasks import Condition
from zol.worlds.base import World

Policy = Callable[[States], Tensor]
"""Actions ``[n, A]`` for states ``[n, …]``."""


@dataclass(frozen=True)
class Step:
    """What one step of n environments led to."""

    states: States
    running: Tensor | None = None  # [n] bool: whose episode went on until this step; None: everybody's

    def those(self, values: Tensor) -> Tensor:
        """The rows of ``values [n, …]`` that belong to episodes that were still running."""
        return values if self.running is None else values[self.running]


def episode(
    world: World, states: States, policy: Policy, steps: int, over: Condition | None = None
) -> Iterator[Step]:
    """Let a policy act for ``steps`` steps, or until every episode is over; yields what each step led to.

    ``states`` are those the environments are in now. An episode is over in a state that the world calls
    terminal, or in a later one where ``over`` is true. From then on its environment shows that last state:
    the world steps it along with the others, but its later states are ignored.
    """
    running = _running_in(states, None)
    for _ in range(steps):
        if running is not None and not bool(running.any()):
            return
        reached = world.step(policy(states))
        states = reached if running is None else _frozen(reached, states, running)
        yield Step(states, running)
        going_on = _running_in(states, over)
        if going_on is not None:
            running = going_on if running is None else running & going_on


def random_policy(world: World, generator: torch.Generator) -> Policy:
    """Uniformly random actions in [−1, 1]."""
    return lambda states: 2 * torch.rand(len(states.obs), world.action_dim, generator=generator) - 1


def _running_in(states: States, over: Condition | None) -> Tensor | None:
    """Whose episode is not over in these states, ``[n]``; None if nothing can end one."""
    if over is None:
        return None if states.terminated is None else ~states.terminated
    ended = over(states)
    return ~(ended if states.terminated is None else ended | states.terminated)


def _frozen(reached: States, before: States, running: Tensor) -> States:
    """The states reached by episodes that were running, and the last state of all others."""

    def chosen(new: Tensor | None, old: Tensor | None) -> Tensor | None:
        if new is None or old is None:
            return new
        keep = running.view(-1, *[1] * (new.ndim - 1))
        return torch.where(keep, new, old.to(new.dtype))

    return replace(
        reached,
        obs=torch.where(running.unsqueeze(-1), reached.obs, before.obs),
        action=chosen(reached.action, before.action),
        physics=chosen(reached.physics, before.physics),
        terminated=chosen(reached.terminated, before.terminated),
    )
