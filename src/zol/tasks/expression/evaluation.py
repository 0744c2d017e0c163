"""The value of a reward's tree on a batch of states."""

import math
from collections.abc import Mapping
from typing import NoReturn

import torch
from torch import Tensor

from zol.fields import States
from zol.tasks.expression.operations import ACTION, COMPONENTS, CONSTANTS, FUNCTIONS, OPERATORS
from zol.tasks.expression.reading import ExpressionError, Node
from zol.tasks.task import Task
from zol.tasks.tolerance import tolerance


class Evaluation:
    """Values on states ``[...]``: ``[]`` where a number is written, ``[...]``, or ``[..., n]`` of vectors."""

    def __init__(self, text: str, states: States, tasks: Mapping[str, Task]) -> None:
        self._text, self._states, self._tasks = text, states, tasks
        self._shape = states.obs.shape[:-1]

    def reward(self, node: Node) -> Tensor:
        """One number per state, or an error that points at what gives more."""
        value = self._value(node)
        if self._is_vector(value):
            self._refuse(
                f"a reward is one number per state, and this is {value.shape[-1]}: take a part, such as "
                "field[0], or norm(…), mean(…), max(…) of them",
                node,
            )
        return value.expand(self._shape)

    def _value(self, node: Node) -> Tensor:
        if node.kind == "number":
            return self._states.obs.new_tensor(node.value)
        if node.kind == "name":
            return self._read(node)
        arguments = [self._value(argument) for argument in node.arguments]
        if node.name == "**":
            return arguments[0] ** node.value
        if node.name == "between":
            return self._between(node, arguments)
        if node.name in COMPONENTS and len(arguments) == 1:
            return COMPONENTS[node.name](arguments[0]) if self._is_vector(arguments[0]) else arguments[0]
        if node.name == "norm":
            one = arguments[0]
            return torch.linalg.vector_norm(one, dim=-1) if self._is_vector(one) else one.abs()
        function = OPERATORS.get(node.name) or FUNCTIONS[node.name][0]
        return function(*self._aligned(node, arguments)).to(self._states.obs.dtype)

    def _read(self, node: Node) -> Tensor:
        name, states = node.name, self._states
        if name in states.layout.names:
            value = states[name]
        elif name in self._tasks:
            value = self._tasks[name](states)
        elif name in ACTION:
            value = states.need_action()
        else:
            return states.obs.new_tensor(CONSTANTS[name])
        value = value.to(states.obs.dtype)
        if node.index is None:
            return value
        if not self._is_vector(value):
            self._refuse(f"'{name}' is a single number: leave the index away", node)
        if node.index >= value.shape[-1]:
            size = value.shape[-1]
            self._refuse(f"'{name}' has {size} numbers, {name}[0] to {name}[{size - 1}]", node)
        return value[..., node.index]

    def _is_field(self, name: str) -> bool:
        return name not in CONSTANTS or name in self._states.layout.names or name in self._tasks

    def _is_vector(self, value: Tensor) -> bool:
        return value.ndim == len(self._shape) + 1 and value.ndim > 0

    def _aligned(self, node: Node, values: list[Tensor]) -> list[Tensor]:
        """Scalars beside vectors get a dimension for components; vectors must agree in length."""
        sizes = {value.shape[-1] for value in values if self._is_vector(value)}
        if len(sizes) > 1:
            self._refuse(
                f"vectors of {' and '.join(map(str, sorted(sizes)))} numbers do not go together here", node
            )
        if not sizes:
            return values
        return [v if self._is_vector(v) or v.ndim == 0 else v.unsqueeze(-1) for v in values]

    def _between(self, node: Node, values: list[Tensor]) -> Tensor:
        for argument in node.arguments[1:]:
            if any(self._is_field(name.name) for name in argument.names()):
                self._refuse("bounds and margin of between(x, low, high, margin) are numbers", argument)
        low, high, *rest = (float(value) for value in values[1:])
        margin = rest[0] if rest else 0.0
        if not low <= high:
            self._refuse(f"between needs low ≤ high, got {low:g} and {high:g}", node)
        if not 0.0 <= margin < math.inf:
            self._refuse(f"the margin of between is 0 or more, got {margin:g}", node)
        return tolerance(values[0], low, high, margin=margin)

    def _refuse(self, sentence: str, node: Node) -> NoReturn:
        raise ExpressionError(sentence, self._text, node.place)
