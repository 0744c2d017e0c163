"""Rewards of your own from a Python file, named as ``FILE.py:NAME``.

NAME is a function of states in torch or NumPy (:mod:`zol.tasks.functions`), such as
``def backwards(s): return (-s["speed"]).clamp(0, 1)``, or a :class:`~zol.tasks.Task`. The file is run, as by
``import``: name only what you would run yourself.
"""

import importlib.util
import traceback
from inspect import getdoc, isfunction
from pathlib import Path

import torch
from torch import Tensor

from zol.common.errors import DataError, ZolError, unknown_name
from zol.fields import States
from zol.tasks.functions import called
from zol.tasks.task import Reward, Task


def task_from_file(where: str) -> Task:
    """The task that ``FILE.py:NAME`` describes, called NAME."""
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not name or path.suffix != ".py":
        raise DataError(
            f"'{where}' names no reward: expected FILE.py:NAME, such as rewards.py:backwards, or "
            "an expression over fields, such as 'torso_height > 1.0' (zol worlds show WORLD)"
        )
    if not path.is_file():
        raise DataError(f"{path} does not exist: the reward '{name}' was to be found there")
    found = _run(path)
    if name not in found:
        raise DataError(
            unknown_name(f"reward in {path}", name, found) if found else f"{path} defines no function or Task"
        )
    value = found[name]
    if isinstance(value, Task):
        return value.named(name)
    return Task(name, _guarded(value, path), (getdoc(value) or "").partition("\n")[0])


def _run(path: Path) -> dict[str, "Task | Reward"]:
    """The functions and tasks that a file defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a file that ends the program would end it without a word
        raise DataError(f"{path} cannot be run{_line(error, path)}: {_named(error)}") from error
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, Task) or (isfunction(value) and value.__module__ == module.__name__))
    }


def _guarded(function: Reward, path: Path) -> Reward:
    """The function with errors that say where to look."""

    def reward(states: States) -> Tensor:
        try:
            value = called(function, states)
        except ZolError:
            raise
        except (Exception, SystemExit) as error:
            raise DataError(
                f"the reward '{function.__name__}' of {path} failed{_line(error, path)}: {_named(error)}"
            ) from error
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"the reward '{function.__name__}' of {path} gave a {type(value).__name__}: a reward is a "
                "tensor with one number per state (or an array), here of shape "
                f"{tuple(states.obs.shape[:-1])}"
            )
        return value

    return reward


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _line(error: BaseException, path: Path) -> str:
    """Where in the user's file it happened."""
    lines = [
        f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name
    ]
    return f" in line {lines[-1]}" if lines else ""
