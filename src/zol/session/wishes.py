"""What a user asks for: names of tasks, tasks, and functions of states, as they come.

How a function sees states, in torch or NumPy, is in :mod:`zol.tasks.functions`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from inspect import getdoc
from typing import Any

from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Layout, States
from zol.tasks import Task
from zol.tasks.expression import is_expression, typed_task
from zol.tasks.from_file import task_from_file
from zol.tasks.functions import called
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
        value = called(function, states)
        if not isinstance(value, Tensor) or value.is_complex():
            raise DataError(
                f"the reward '{name_of(function)}' gave a {_kind(value)}: a reward gives one number "
                f"per state, here a tensor or array of shape {tuple(states.obs.shape[:-1])}"
            )
        return value

    return reward


def own_reward(text: str, layout: Layout, tasks: Mapping[str, Task]) -> Task:
    """The reward that a user typed on a command line: an expression over fields, or FILE.py:NAME."""
    if ".py:" not in text and is_expression(text, layout):
        return typed_task(text, layout, tasks)
    return task_from_file(text)


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
