r"""Rewards as text: ``1.2 * (torso_height > 1.0) - 0.1 * norm(action)``, over the named fields of a world.

A name is a field of the layout, a task of the world, ``action`` (or ``ctrl``), ``pi`` or ``inf``. Comparisons
and ``and``, ``or``, ``not`` give 1 or 0. A field of several numbers is a vector; operators work on its
components, and the whole has to come out as one number per state. The grammar stands in
:mod:`zol.tasks.expression.reading`, and for users in docs/rewards.md.

A tokenizer and a recursive descent of our own turn the text into numbers, names and entries of two fixed
tables (:mod:`zol.tasks.expression.operations`): nothing in it is ever run as Python.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from torch import Tensor

from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.tasks.expression.evaluation import Evaluation
from zol.tasks.expression.operations import ACTION, COMPARISONS, CONSTANTS, FUNCTIONS
from zol.tasks.expression.reading import LONGEST, ExpressionError, Node, Reader, check_length
from zol.tasks.task import Task

__all__ = ["ExpressionError", "is_expression", "scalar_fields", "typed_task", "wanted_values"]


def typed_task(
    text: str, layout: Layout, tasks: Mapping[str, Task] | None = None, name: str | None = None
) -> Task:
    """The task whose reward is the expression ``text``; it is called as it is written unless named.

    ``NAME = EXPRESSION`` gives it a name, too. ``tasks`` are those that the expression may read by name.
    """
    check_length(text)
    given, body = _named(text)
    node = Reader(body).read()
    known = dict(tasks or {})
    for read in node.names():
        _check_name(read, body, layout, known)

    def reward(states: States) -> Tensor:
        return Evaluation(body, states, known).reward(node)

    return Task(name or given or " ".join(body.split()), reward)


def is_expression(text: str, layout: Layout) -> bool:
    """Whether a text is meant as an expression, and not as the name of something.

    It is if it has a sign, a bracket or a space in it that names do not have, or names a field.
    """
    words = re.findall(r"[A-Za-z_]\w*", text)
    known = {*layout.names, *ACTION}
    return bool(re.search(r"[\s()<>=*/+\[\]!]", text)) or (bool(words) and known.issuperset(words))


def scalar_fields(states: States) -> list[str]:
    """The fields that are one number per state in these states, in the layout's order."""
    found = []
    for name in states.layout.names:
        try:
            value = states[name]
        except DataError:  # it needs the simulator state or the action, which these states lack
            continue
        if value.shape == states.obs.shape[:-1] and name.isidentifier() and name.isascii():
            found.append(name)
    return found


def wanted_values(text: str) -> list[tuple[str, int | None, float]]:
    """Fields (with index) and the finite numbers that they are compared with, by a sign or by ``between``.

    A text that is no expression compares nothing.
    """
    try:
        node = Reader(_named(text)[1]).read() if len(text) <= LONGEST else None
    except ExpressionError:
        node = None
    return [] if node is None else list(_compared(node))


def _compared(node: Node) -> Iterator[tuple[str, int | None, float]]:
    if node.kind == "apply" and (node.name in COMPARISONS or node.name == "between"):
        sides = node.arguments[:3]
        names = [side for side in sides if side.kind == "name" and side.name not in CONSTANTS]
        values = [value for value in map(_number, sides) if value is not None]
        if len(names) == 1:
            yield from ((names[0].name, names[0].index, value) for value in values)
    for argument in node.arguments:
        yield from _compared(argument)


def _number(node: Node) -> float | None:
    """The value of a number with or without a sign."""
    if node.kind == "number":
        return node.value
    if node.name in ("negative", "positive") and node.arguments[0].kind == "number":
        return node.arguments[0].value * (-1 if node.name == "negative" else 1)
    return None


def _named(text: str) -> tuple[str | None, str]:
    """The name in front of a single equals sign, if there is one, and the expression."""
    match = re.match(r"\s*([A-Za-z_]\w*)\s*=(?!=)", text, re.ASCII)
    return (match[1], text[match.end() :]) if match else (None, text)


def _check_name(node: Node, text: str, layout: Layout, tasks: Iterable[str]) -> None:
    if node.name in layout.names or node.name in ACTION or node.name in CONSTANTS or node.name in tasks:
        return
    if node.name in FUNCTIONS:
        raise ExpressionError(f"{node.name} is a function: write {FUNCTIONS[node.name][3]}", text, node.place)
    known = [*layout.names, *tasks, *ACTION]
    hint = ""
    if not get_close_matches(node.name, known, n=1, cutoff=0.5):
        hint = next((f" ('{field}' is one)" for field in known if node.name in field), "")
    raise ExpressionError(unknown_name("field", node.name, known) + hint, text, node.place)
