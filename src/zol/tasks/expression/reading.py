r"""From the text of a reward to a tree of numbers, names and operations, of limited size.

reward     := or
or         := and { "or" and }
and        := not { "and" not }
not        := "not" not | comparison
comparison := sum { ("<" | "<=" | ">" | ">=" | "==" | "!=") sum }      0 < x < 1 means 0 < x and x < 1
sum        := product { ("+" | "-") product }
product    := sign { ("*" | "/") sign }
sign       := ("-" | "+") sign | power
power      := atom [ "**" ["-" | "+"] NUMBER ]                         the number is within ±8
atom       := NUMBER | NAME [ "[" INTEGER "]" ] | FUNCTION "(" or { "," or } ")" | "(" or ")"
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

from zol.common.errors import DataError, unknown_name
from zol.tasks.expression.operations import COMPARISONS, FUNCTIONS

LONGEST = 2000  # characters
MOST_TOKENS = 400
DEEPEST = 40  # parentheses, signs and nots inside each other
LARGEST_EXPONENT = 8.0
AROUND = 60  # characters shown on each side of a mistake

TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>\*\*|<=|>=|==|!=|[-+*/<>()\[\],])|(?P<space>\s+)",
    re.ASCII,
)
# What people write in other languages.
MEANT = {"^": "**", "&": "and", "|": "or", "!": "not", "=": "==", "{": "(", "}": ")", ";": "+", "×": "*"}


class ExpressionError(DataError):
    """A reward that cannot be read or computed: the sentence, and under it the place."""

    def __init__(self, sentence: str, text: str, place: slice) -> None:
        self.sentence, self.text, self.place = sentence, text, place
        begin, end = max(0, place.start - AROUND), min(len(text), max(place.stop, place.start + 1) + AROUND)
        shown = "".join(c if c.isprintable() else " " for c in text[begin:end])
        width = max(1, min(place.stop, end) - place.start)
        super().__init__(f"{sentence}\n    {shown}\n    {' ' * (place.start - begin)}{'^' * width}")


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, symbol or end
    text: str
    place: slice


@dataclass(frozen=True)
class Node:
    """A number, a name, or something applied to other nodes; ``place`` is where it stands in the text."""

    place: slice
    name: str = ""  # of a field, task or function; of an operator, its symbol
    value: float = 0.0
    index: int | None = None
    arguments: tuple["Node", ...] = ()
    kind: str = "number"  # number, name or apply

    def names(self) -> Iterator["Node"]:
        """Every name that is read in here."""
        if self.kind == "name":
            yield self
        for argument in self.arguments:
            yield from argument.names()


def check_length(text: str) -> None:
    """Refuse a text that is too long to be looked at."""
    if len(text) > LONGEST:
        raise ExpressionError(
            f"this reward has {len(text)} characters, {LONGEST} are allowed: write a long one as a function "
            "in a file, FILE.py:NAME",
            text,
            slice(LONGEST, LONGEST + 1),
        )


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            _refuse_character(text, at)
        at = match.end()
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], slice(*match.span())))
        if len(found) > MOST_TOKENS:
            raise ExpressionError(
                f"this reward has more than {MOST_TOKENS} numbers, names and signs: write a long one as a "
                "function in a file, FILE.py:NAME",
                text,
                found[-1].place,
            )
    return [*found, _Token("end", "", slice(len(text), len(text) + 1))]


def _refuse_character(text: str, at: int) -> NoReturn:
    sign, place = text[at], slice(at, at + 1)
    shown = sign if sign.isprintable() else repr(sign)[1:-1]
    if sign in MEANT:
        raise ExpressionError(f"'{shown}' means nothing here; did you mean '{MEANT[sign]}'?", text, place)
    if sign == ".":
        raise ExpressionError("a field has no attributes, and a number needs a digit here", text, place)
    raise ExpressionError(f"'{shown}' means nothing in a reward", text, place)


class Reader:
    """Recursive descent over the tokens of one text; see the grammar at the top."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at, self._depth = text, _tokens(text), 0, 0

    def read(self) -> Node:
        """The tree of the whole text."""
        node = self._or()
        if self._next.kind != "end":
            self._refuse(f"the reward is complete before {self._next.text!r}: an operator is missing")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _refuse(self, sentence: str, place: slice | None = None) -> NoReturn:
        raise ExpressionError(sentence, self._text, place or self._next.place)

    def _take(self, *texts: str) -> _Token | None:
        """The next token if it is one of these signs or words."""
        token = self._next
        if token.kind in ("number", "end") or token.text not in texts:
            return None
        self._at += 1
        return token

    def _require(self, sign: str, why: str) -> _Token:
        token = self._take(sign)
        if token is None:
            self._refuse(f"expected '{sign}' {why}")
        return token

    def _deeper(self, read: Callable[[], Node]) -> Node:
        """Read a part of a part; Python's own stack is no limit to rely on."""
        self._depth += 1
        if self._depth > DEEPEST:
            self._refuse(f"this is nested more than {DEEPEST} deep: write it with fewer parentheses")
        node = read()
        self._depth -= 1
        return node

    def _chain(self, part: Callable[[], Node], *signs: str) -> Node:
        """Parts joined by operators of one rank, from left to right."""
        node = part()
        while token := self._take(*signs):
            node = _applied(token.text, node, part())
        return node

    def _or(self) -> Node:
        return self._chain(self._and, "or")

    def _and(self) -> Node:
        return self._chain(self._not, "and")

    def _not(self) -> Node:
        if token := self._take("not"):
            operand = self._deeper(self._not)
            return Node(slice(token.place.start, operand.place.stop), "not", 0, None, (operand,), "apply")
        return self._comparison()

    def _comparison(self) -> Node:
        left, found = self._sum(), None
        while token := self._take(*COMPARISONS):
            right = self._sum()
            one = _applied(token.text, left, right)
            found, left = one if found is None else _applied("and", found, one), right
        return left if found is None else found

    def _sum(self) -> Node:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Node:
        return self._chain(self._sign, "*", "/")

    def _sign(self) -> Node:
        if token := self._take("-", "+"):
            operand = self._deeper(self._sign)
            place = slice(token.place.start, operand.place.stop)
            return Node(place, "negative" if token.text == "-" else "positive", 0, None, (operand,), "apply")
        return self._power()

    def _power(self) -> Node:
        base = self._atom()
        if self._take("**") is None:
            return base
        begin = self._next.place.start
        sign = -1.0 if (token := self._take("-", "+")) and token.text == "-" else 1.0
        number, place = self._next, slice(begin, self._next.place.stop)
        if number.kind != "number":
            self._refuse(f"the exponent after ** is a number within ±{LARGEST_EXPONENT:g}", place)
        self._at += 1
        exponent = sign * float(number.text)
        if abs(exponent) > LARGEST_EXPONENT:
            self._refuse(f"the exponent {exponent:g} is too large: ±{LARGEST_EXPONENT:g} at most", place)
        if self._next.text == "**":
            self._refuse("one ** after another is not allowed: use parentheses")
        return Node(slice(base.place.start, place.stop), "**", exponent, None, (base,), "apply")

    def _atom(self) -> Node:
        token = self._next
        if token.kind == "number":
            self._at += 1
            value = float(token.text)
            if not math.isfinite(value):
                self._refuse(f"{token.text} is too large for a number", token.place)
            return Node(token.place, value=value)
        if self._take("("):
            node = self._deeper(self._or)
            closing = self._require(")", "to close this parenthesis")
            return replace(node, place=slice(token.place.start, closing.place.stop))
        if token.kind == "name" and token.text not in ("and", "or", "not"):
            self._at += 1
            return self._call(token) if self._next.text == "(" else self._name(token)
        if token.kind == "end":
            self._refuse("the reward ends here, and a number, a field or a parenthesis is missing")
        self._refuse(f"expected a number, a field or a parenthesis, found '{token.text}'")

    def _name(self, token: _Token) -> Node:
        if self._take("[") is None:
            return Node(token.place, token.text, kind="name")
        number = self._next
        if number.kind != "number" or not number.text.isdecimal() or len(number.text) > 6:
            self._refuse(f"{token.text}[…] takes one whole number, counted from 0, such as {token.text}[0]")
        self._at += 1
        closing = self._require("]", "after the index")
        place = slice(token.place.start, closing.place.stop)
        return Node(place, token.text, index=int(number.text), kind="name")

    def _call(self, token: _Token) -> Node:
        if token.text not in FUNCTIONS:
            self._refuse(unknown_name("function", token.text, FUNCTIONS), token.place)
        self._take("(")
        arguments = [self._deeper(self._or)]
        while self._take(","):
            arguments.append(self._deeper(self._or))
        closing = self._require(")", f"after the arguments of {token.text}")
        place = slice(token.place.start, closing.place.stop)
        least, most, usage = FUNCTIONS[token.text][1:]
        if not least <= len(arguments) <= most:
            self._refuse(f"{token.text} was given {len(arguments)} arguments: write {usage}", place)
        return Node(place, token.text, arguments=tuple(arguments), kind="apply")


def _applied(operator: str, left: Node, right: Node) -> Node:
    place = slice(left.place.start, right.place.stop)
    return Node(place, operator, arguments=(left, right), kind="apply")
