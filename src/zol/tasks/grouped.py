"""Rewards and successes of many groups of environments at once: group k of a batch belongs to task k.

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
    table = _empty_table(len(tasks), states, torch.float64)
    for task, mine in _groups_of(tasks):
        table[:, mine] = task(_pick(states, mine, len(tasks))).double()
    return table


def grouped_success(tasks: Sequence[Task], states: States) -> Tensor:
    """Whether states ``[K, L·E, …]`` solve their group's task, ``[K, L, E]``; never without a test."""
    table = _empty_table(len(tasks), states, torch.bool).fill_(False)
    for task, mine in _groups_of(tasks):
        if task.success is not None:
            table[:, mine] = task.succeeded(_pick(states, mine, len(tasks)))
    return table


def stacked(sequence: Sequence[States]) -> States:
    """K successive batches of states as one, ``[K, n, …]``."""

    def pile(values: list[Tensor | None]) -> Tensor | None:
        present = [value for value in values if value is not None]
        return torch.stack(present) if len(present) == len(values) else None

    return States(
        torch.stack([states.obs for states in sequence]),
        sequence[0].layout,
        action=pile([s.action for s in sequence]),
        physics=pile([s.physics for s in sequence]),
        terminated=pile([s.terminated for s in sequence]),
    )


def _groups_of(tasks: Sequence[Task]) -> list[tuple[Task, list[int]]]:
    """Every task with the groups it scores: one shared by many is evaluated once, on all their states."""
    distinct = {id(task): task for task in tasks}.values()
    return [(task, [k for k, own in enumerate(tasks) if own is task]) for task in distinct]


def _empty_table(groups: int, states: States, dtype: torch.dtype) -> Tensor:
    lead, rows = states.obs.shape[:2]
    return torch.empty(lead, groups, rows // groups, dtype=dtype)


def _pick(states: States, mine: list[int], groups: int) -> States:
    """The states of some groups, ``[K, len(mine), E, …]``."""

    def grouped(values: Tensor) -> Tensor:
        return values.reshape(len(values), groups, -1, *values.shape[2:])[:, mine]

    def pick(values: Tensor | None) -> Tensor | None:
        return None if values is None else grouped(values)

    return States(
        grouped(states.obs),
        states.layout,
        action=pick(states.action),
        physics=pick(states.physics),
        terminated=pick(states.terminated),
    )
