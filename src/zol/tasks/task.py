"""What is wanted: a reward is a pure function of a batch of named states.

The same function relabels data, prompts a model and scores rollouts. A reward reads observation
fields by name, so it is written once and works on a million rows, on one state, or on imagined ones:

    stand = Task("stand", lambda s: (s["torso_height"] > 1.2).float())
    quiet = Task("quiet", lambda s: -s["qvel"].square().mean(-1))
    both = stand + 0.1 * quiet

A task may also say where its episodes start, which state solves it, how success is told, and whether an
episode is over once it succeeds. A task without them starts where its world starts and is scored by its
reward alone.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import States

Reward = Callable[[States], Tensor]
"""Rewards ``[...]`` of states ``[..., D]``."""
Condition = Callable[[States], Tensor]
"""Truth values ``[...]`` of states ``[..., D]``."""
Starts = Callable[[int, torch.Generator], Tensor]
"""``n`` simulator states ``[n, P]`` drawn with a generator."""

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A named reward, and optionally where its episodes start, its goal and its test of success.

    More tasks are made of it: ``walk - 0.1 * effort``, ``fast * upright``, ``run.where(…)``. Of starts, goal,
    place and success a combination of two tasks keeps what only one of them has, or what both share; where
    both have their own, neither speaks for the combination, and it has none. What is subtracted, or scaled by
    a factor of zero or less, is not wanted any more: its goal, its place and its success are dropped.
    """

    name: str
    reward: Reward
    description: str = ""
    starts: Starts | None = None
    """where episodes of this task begin; None: where the world begins"""
    goal: Tensor | None = field(default=None, compare=False)
    """an observation ``[D]`` that solves the task, for prompts that are given a goal"""
    success: Condition | None = None
    """whether a state solves the task"""
    ends_at_success: bool = False
    """whether an episode of this task is over as soon as it succeeds"""
    place: tuple[float, ...] | None = None
    """the point of the world to be at, in metres, if the task is about one; films show it"""

    def __post_init__(self) -> None:
        if self.ends_at_success and self.success is None:
            raise DataError(f"task '{self.name}' ends at success, but has no test of it: pass success=...")

    def __call__(self, states: States) -> Tensor:
        """Rewards of a batch of states, ``[...]``."""
        return self._one_per_state(self.reward(states), states, "a reward gives one number")

    def succeeded(self, states: States) -> Tensor:
        """Whether each of these states solves the task, ``[...]`` of truth values."""
        if self.success is None:
            raise DataError(f"task '{self.name}' has no test of success: make it with success=...")
        found = self._one_per_state(self.success(states), states, "a test of success gives one truth value")
        return found.bool()

    def _one_per_state(self, value: Tensor, states: States, expected: str) -> Tensor:
        if not isinstance(value, Tensor) or value.is_complex():
            kind = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
            raise DataError(
                f"task '{self.name}' returned {kind}: {expected} per state, as a tensor of real numbers of "
                f"shape {tuple(states.obs.shape[:-1])}"
            )
        if value.shape != states.obs.shape[:-1]:
            raise DataError(
                f"task '{self.name}' returned shape {tuple(value.shape)} for states of shape "
                f"{tuple(states.obs.shape[:-1])}: {expected} per state, whatever the leading dimensions are "
                "(write s[...][..., 0], not [:, 0])"
            )
        return value

    def __add__(self, other: "Task") -> "Task":
        return self._with(other, f"{self.name} + {other.name}", lambda s: self(s) + other(s))

    def __sub__(self, other: "Task") -> "Task":
        return self._with(-1 * other, f"{self.name} - ({other.name})", lambda s: self(s) - other(s))

    def __mul__(self, other: "Task | float") -> "Task":
        if isinstance(other, Task):
            return self._with(other, f"({self.name})·({other.name})", lambda s: self(s) * other(s))
        scaled = replace(
            self, name=f"{other:g}·({self.name})", reward=lambda s: other * self(s), description=""
        )
        if other > 0:
            return scaled
        return replace(scaled, goal=None, place=None, success=None, ends_at_success=False)

    __rmul__ = __mul__

    def _with(self, other: "Task", name: str, reward: Reward) -> "Task":
        """The combination of two tasks; what happens to starts, goal and success is said at the top."""
        success = _shared(self.success, other.success)
        ends = success is not None and (
            (self.ends_at_success and success is self.success)
            or (other.ends_at_success and success is other.success)
        )
        return Task(
            name,
            reward,
            starts=_shared(self.starts, other.starts),
            goal=_shared(self.goal, other.goal),
            success=success,
            ends_at_success=ends,
            place=_shared(self.place, other.place),
        )

    def where(self, mask: Condition) -> "Task":
        """The same reward where ``mask(states)`` is true, zero elsewhere; starts, goal and success stay."""
        return replace(
            self,
            name=f"{self.name} where …",
            reward=lambda s: torch.where(mask(s).bool(), self(s), torch.zeros_like(self(s))),
            description="",
        )

    def named(self, name: str, description: str = "") -> "Task":
        """The same task under another name."""
        return replace(self, name=name, description=description or self.description)


def _shared(one: T | None, other: T | None) -> T | None:
    """What only one of two tasks has, or both have in common; None where they differ."""
    if one is None or other is None or one is other:
        return other if one is None else one
    return None


def earnings(states: States, tasks: Iterable[Task]) -> dict[str, Tensor]:
    """Rewards ``[N]`` of states ``[N, …]`` under every task that they can be scored by."""
    found = {}
    for task in tasks:
        with suppress(DataError):  # it needs the simulator state or the action, which these states lack
            found[task.name] = task(states)
    return found
