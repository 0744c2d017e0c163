"""Rewards as plain functions of states, written in torch or in NumPy.

``s["FIELD"]`` gives torch tensors, on which NumPy's functions work, too. A function that needs NumPy arrays
(``.astype``, ``np.sum(…, axis=-1)``) is given arrays instead. It always sees states in rows, ``[N, …]``,
wherever they come from, so that ``s["obs"][:, 0]`` means what it seems to mean.
"""

from dataclasses import replace
from typing import Any
from warnings import catch_warnings, filterwarnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.fields import States
from zol.tasks.task import Reward


def called(function: Reward, states: States) -> Any:
    """What a function says of states ``[..., D]``: a float tensor ``[...]`` if it gave numbers of any kind.

    Anything else is handed back as it came, for whoever asked to refuse.
    """
    shape = states.obs.shape[:-1]
    value = _either(function, _in_rows(states))
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
        value = torch.as_tensor(value)
    if not isinstance(value, Tensor) or value.is_complex():
        return value
    value = value if value.is_floating_point() else value.float()
    return value.reshape(shape) if value.shape == (shape.numel(),) else value


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


def _either(function: Reward, states: States) -> Any:
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
