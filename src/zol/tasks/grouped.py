"""Rewards of many groups of environments at once: group k of a batch is scored by task k.

Rewards are pure functions of states, so those of many steps, and of all groups that share a task, are
computed in one call; that costs much less than many small calls between two steps of physics.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from zol.fields import States
from zol.tasks.task import Task


def grouped_rewards(tasks: Sequence[Task], states: States) -> Tensor:
    """Rewards ``[K, L, E]`` of states ``[K, L·E, …]``: L groups of E environments, one task per group."""
    groups = len(tasks)
    lead, rows = states.obs.shape[0], states.obs.shape[1]
    table = torch.empty(lead, groups, rows // groups, dtype=torch.float64)
    for task in set(tasks):  # a task shared by many groups is evaluated once, on all their states
        mine = [k for k, own in enumerate(tasks) if own is task]
        table[:, mine] = task(_pick(states, mine, groups)).double()
    return table


def stacked(sequence: Sequence[States]) -> States:
    """K successive batches of states as one, ``[K, n, …]``."""

    def pile(values: list[Tensor | None]) -> Tensor | None:
        present = [value for value in values if value is not None]
        return torch.stack(present) if len(present) == len(values) else None

    obs = torch.stack([states.obs for states in sequence])
    action, physics = pile([s.action for s in sequence]), pile([s.physics for s in sequence])
    return States(obs, sequence[0].layout, action=action, physics=physics)


def _pick(states: States, mine: list[int], groups: int) -> States:
    """The states of some groups, ``[K, len(mine), E, …]``."""

    def pick(values: Tensor) -> Tensor:
        return values.reshape(len(values), groups, -1, values.shape[-1])[:, mine]

    action = None if states.action is None else pick(states.action)
    physics = None if states.physics is None else pick(states.physics)
    return States(pick(states.obs), states.layout, action=action, physics=physics)
