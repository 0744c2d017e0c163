"""What is wanted: a reward is a pure function of a batch of named states.

The same function relabels data, prompts a model and scores rollouts. A reward reads observation
fields by name, so it is written once and works on a million rows, on one state, or on imagined ones:

    stand = Task("stand", lambda s: (s["torso_height"] > 1.2).float())
    quiet = Task("quiet", lambda s: -s["qvel"].square().mean(-1))
    both = stand + 0.1 * quiet
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import States

Reward = Callable[[States], Tensor]


@dataclass(frozen=True)
class Task:
    """A named reward. More are made of it: ``walk - 0.1 * effort``, ``fast * upright``, ``run.where(…)``."""

    name: str
    reward: Reward
    description: str = ""

    def __call__(self, states: States) -> Tensor:
        """Rewards of a batch of states, ``[...]``."""
        value = self.reward(states)
        if value.shape != states.obs.shape[:-1]:
            raise DataError(
                f"task '{self.name}' returned shape {tuple(value.shape)} for states of shape "
                f"{tuple(states.obs.shape[:-1])}: a reward gives one number per state"
            )
        return value

    def __add__(self, other: "Task") -> "Task":
        return Task(f"{self.name} + {other.name}", lambda s: self(s) + other(s))

    def __sub__(self, other: "Task") -> "Task":
        return Task(f"{self.name} - ({other.name})", lambda s: self(s) - other(s))

    def __mul__(self, other: "Task | float") -> "Task":
        if isinstance(other, Task):
            return Task(f"({self.name})·({other.name})", lambda s: self(s) * other(s))
        return Task(f"{other:g}·({self.name})", lambda s: other * self(s))

    __rmul__ = __mul__

    def where(self, mask: Reward) -> "Task":
        """The same reward where ``mask(states)`` is true, zero elsewhere."""
        return Task(
            f"{self.name} where …", lambda s: torch.where(mask(s).bool(), self(s), torch.zeros_like(self(s)))
        )

    def named(self, name: str, description: str = "") -> "Task":
        """The same reward under another name."""
        return replace(self, name=name, description=description or self.description)


def earnings(states: States, tasks: Iterable[Task]) -> dict[str, Tensor]:
    """Rewards ``[N]`` of states ``[N, …]`` under every task that they can be scored by."""
    found = {}
    for task in tasks:
        with suppress(DataError):  # it needs the simulator state or the action, which these states lack
            found[task.name] = task(states)
    return found
