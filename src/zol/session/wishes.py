"""What a user asks for: names of tasks, tasks, and functions of states, as they come.

A reward is a plain function: ``s["FIELD"]`` gives torch tensors, on which NumPy's functions work, too. One
that needs NumPy arrays (``.astype``, ``np.sum(…, axis=-1)``) is given arrays instead. It always sees states
in rows, ``[N, …]``, wherever they come from, so that ``s["obs"][:, 0]`` means what it seems to mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import getdoc
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Layout, States
from zol.tasks import Task
from zol.tasks.expression import is_expression, typed_task
from zol.tasks.from_file import task_from_file
from zol.tasks.task import Reward

Wish = str | Task | Reward
"""What a user may ask for: a task's name, a reward typed as an expression, a task, a function of states."""

Wishes = Wish | Sequence[Wish] | Mapping[str, Wish]
"""One wish or several; a mapping gives functions and tasks names of its own."""

NAMELESS = "reward"


@lru_cache(maxsize=256)  # the same function is the same reward, so that tasks made of it are equal
def as_reward(function: Reward) -> Reward:
    """A user's function of states; boolean, integer and NumPy results become float tensors."""

    def reward(states: States) -> Tensor:
        shape = states.obs.shape[:-1]
        value = _called(function, _in_rows(states))
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
            value = torch.as_tensor(value)
        if not isinstance(value, Tensor) or value.is_complex():
            raise DataError(
                f"the reward '{name_of(function)}' gave a {_kind(value)}: a reward gives one number "
                f"per state, here a tensor or array of shape {tuple(shape)}"
            )
        value = value if value.is_floating_point() else value.float()
        return value.reshape(shape) if value.shape == (shape.numel(),) else value

    return reward


def own_reward(text: str, layout: Layout, tasks: Mapping[str, Task]) -> Task:
    """The reward that a user typed on a command line: an expression over fields, or FILE.py:NAME."""
    if ".py:" not in text and is_expression(text, layout):
        return typed_task(text, layout, tasks)
    return task_from_file(text)


class ArrayStates:
    """States for rewards that are written in NumPy: ``s["FIELD"]`` is an array."""

    def __init__(self, states: States) -> None:
        self._states = states

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The field's values: ``[N]`` for a scalar field, ``[N, size]`` otherwise."""
        return self._states[name].numpy(force=True)

    @property
    def obs(self) -> NDArray[Any]:
        """Whole observations ``[N, D]``."""
        return self._states.obs.numpy(force=True)

    @property
    def action(self) -> NDArray[Any]:
        """The actions ``[N, A]`` that led to these states."""
        return self._states.need_action().numpy(force=True)


def _called(function: Reward, states: States) -> Any:
    """What the function makes of tensors, or of arrays if it cannot work on tensors."""
    with catch_warnings():
        filterwarnings("ignore", "__array_wrap__ must accept", DeprecationWarning)  # np.cos(tensor)
        try:
            return function(states)
        except (AttributeError, TypeError) as error:
            try:
                return function(ArrayStates(states))  # type: ignore[arg-type]
            except (AttributeError, TypeError):
                raise error from None


def _in_rows(states: States) -> States:
    """The same states in one leading dimension, ``[N, …]``."""
    lead = states.obs.shape[:-1]
    if len(lead) == 1:
        return states

    def rows(values: Tensor) -> Tensor:
        return values.reshape(lead.numel(), *values.shape[len(lead) :])

    return replace(
        states,
        obs=rows(states.obs),
        action=None if states.action is None else rows(states.action),
        physics=None if states.physics is None else rows(states.physics),
        known={name: rows(values) for name, values in states.known.items()},
        terminated=None if states.terminated is None else rows(states.terminated),
    )


def with_names(wishes: Wishes) -> list[tuple[str, Wish]]:
    """Wishes with the names that nameless ones get."""
    if isinstance(wishes, Mapping):
        return [(name, wish.named(name) if isinstance(wish, Task) else wish) for name, wish in wishes.items()]
    if isinstance(wishes, str | Task) or callable(wishes):
        return [(name_of(wishes), wishes)]
    names = [name_of(wish) for wish in wishes]
    if names.count(NAMELESS) > 1:
        names = [
            f"{name} {names[: k + 1].count(name)}" if name == NAMELESS else name
            for k, name in enumerate(names)
        ]
    return list(zip(names, wishes, strict=True))


def name_of(wish: Wish) -> str:
    """What a wish is called; a lambda has no name of its own."""
    if isinstance(wish, str):
        return wish
    name = wish.name if isinstance(wish, Task) else getattr(wish, "__name__", "")
    return NAMELESS if name in ("", "<lambda>") else name


def first_line(function: Reward) -> str:
    """The first line of what a function says of itself."""
    return (getdoc(function) or "").partition("\n")[0]


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ + (f" of {dtype}" if dtype is not None else "")
