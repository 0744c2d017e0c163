"""What an expression may compute: two fixed tables of operators and functions, and nothing beside them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from zol.tasks.tolerance import tolerance

ACTION = ("action", "ctrl")  # two names of what led to the state
CONSTANTS = {"pi": math.pi, "inf": math.inf}

Operation = Callable[..., Tensor]


def _folded(function: Operation) -> Operation:
    """The same over two or more arguments."""

    def fold(first: Tensor, *rest: Tensor) -> Tensor:
        for other in rest:
            first = function(first, other)
        return first

    return fold


def _clip(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(x, low), high)


COMPARISONS: dict[str, Operation] = {
    "<": torch.lt,
    "<=": torch.le,
    ">": torch.gt,
    ">=": torch.ge,
    "==": torch.eq,
    "!=": torch.ne,
}
OPERATORS: dict[str, Operation] = COMPARISONS | {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "negative": torch.neg,
    "positive": lambda x: x,
    "and": lambda a, b: (a != 0) & (b != 0),
    "or": lambda a, b: (a != 0) | (b != 0),
    "not": lambda a: a == 0,
}
# Of one argument these go over the components of a vector.
COMPONENTS: dict[str, Operation] = {
    "min": lambda x: x.amin(-1),
    "max": lambda x: x.amax(-1),
    "mean": lambda x: x.mean(-1),
    "sum": lambda x: x.sum(-1),
}
# name: (function of tensors, fewest arguments, most arguments, how it is written)
FUNCTIONS: dict[str, tuple[Operation, int, int, str]] = {
    "norm": (torch.linalg.vector_norm, 1, 1, "norm(vector)"),
    "abs": (torch.abs, 1, 1, "abs(x)"),
    "min": (_folded(torch.minimum), 1, 8, "min(x, y) or min(vector)"),
    "max": (_folded(torch.maximum), 1, 8, "max(x, y) or max(vector)"),
    "mean": (torch.mean, 1, 1, "mean(vector)"),
    "sum": (torch.sum, 1, 1, "sum(vector)"),
    "clip": (_clip, 3, 3, "clip(x, low, high)"),
    "exp": (torch.exp, 1, 1, "exp(x)"),
    "sqrt": (torch.sqrt, 1, 1, "sqrt(x)"),
    "sin": (torch.sin, 1, 1, "sin(x)"),
    "cos": (torch.cos, 1, 1, "cos(x)"),
    "between": (tolerance, 3, 4, "between(x, low, high) or between(x, low, high, margin)"),
}
