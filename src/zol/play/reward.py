"""Rewards by sliders: each wanted field is a term, and together they are an expression like any other.

    2 * walk + 1 * between(torso_height, 1.2, 1.2, 0.3) - 0.1 * norm(action)

So what the sliders say can be read, copied, typed and saved (:mod:`zol.tasks.expression`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from zol.fields import Layout, States
from zol.tasks.expression import scalar_fields

FEW = 3  # vectors of at most so many numbers get a slider for each
Sense = Literal["about", "at least", "at most"]
SENSES: tuple[Sense, ...] = ("about", "at least", "at most")


@dataclass(frozen=True)
class Quantity:
    """Something a slider can ask for: an expression, and the values that the sample has of it."""

    text: str
    low: float  # nearly all of the sample lies between low
    high: float  # and high
    unit: str = ""
    meaning: str = ""

    @property
    def step(self) -> float:
        """A slider's step: a power of ten, a hundredth of the range or less."""
        return float(10.0 ** math.floor(math.log10(max(self.high - self.low, 1e-6) / 100)))

    @property
    def bounds(self) -> tuple[float, float]:
        """The slider's ends: the range with a quarter more on both sides, in whole steps."""
        more = (self.high - self.low) / 4
        step = self.step
        low, high = math.floor((self.low - more) / step) * step, math.ceil((self.high + more) / step) * step
        return rounded(low, step), rounded(high, step)


@dataclass(frozen=True)
class Term:
    """How much a quantity counts, which value is wanted, and how far off is tolerated."""

    text: str
    weight: float = 0.0
    target: float = 0.0
    tolerance: float = 1.0
    sense: Sense = "about"

    def __str__(self) -> str:
        """``weight * between(x, low, high, tolerance)``: 0.1 of the reward is left at the tolerance."""
        low = "-inf" if self.sense == "at most" else number(self.target)
        high = "inf" if self.sense == "at least" else number(self.target)
        return f"{number(self.weight)} * between({self.text}, {low}, {high}, {number(self.tolerance)})"


def expression(tasks: Mapping[str, float], terms: Sequence[Term], effort: float = 0.0) -> str:
    """Weighted tasks and terms, less ``effort`` times the size of the action; '' if nothing counts."""
    parts = [
        name if weight == 1 else f"{number(weight)} * {name}" for name, weight in tasks.items() if weight
    ]
    parts += [str(term) for term in terms if term.weight]
    if effort:
        parts.append(f"{number(-effort)} * norm(action)")
    return " + ".join(parts).replace("+ -", "- ")


def quantities(states: States) -> list[Quantity]:
    """What sliders can ask for in this world: scalar fields, and the components of short vectors."""
    texts = {name: name for name in scalar_fields(states)}
    for field in states.layout.fields:
        if 1 < field.size <= FEW and field.name.isidentifier():
            texts |= {f"{field.name}[{k}]": field.name for k in range(field.size)}
    return [_quantity(text, name, states) for text, name in texts.items()]


def _quantity(text: str, name: str, states: States) -> Quantity:
    values = states[name] if text == name else states[name][..., int(text[len(name) + 1 : -1])]
    ends = torch.tensor([0.002, 0.998], dtype=torch.float64)
    low, high = torch.quantile(values.double(), ends).tolist()
    if not high > low:
        low, high = low - 1.0, high + 1.0
    field = states.layout.find(name)
    about = states.layout.derived[name].__doc__ or "" if field is None else field.meaning
    return Quantity(text, low, high, unit_of(states.layout, name), about)


def unit_of(layout: Layout, name: str) -> str:
    """The unit of a field; that of a derived one stands in brackets in what it says of itself."""
    field = layout.find(name)
    if field is not None:
        return field.unit
    bracketed = re.search(r"\[([^\]]+)\]", layout.derived[name].__doc__ or "")
    return bracketed[1] if bracketed else ""


def number(value: float) -> str:
    """A number as it is typed: no more digits than it needs."""
    return f"{value:.6g}"


def rounded(value: float, step: float) -> float:
    """A whole number of steps, without the dust of binary fractions."""
    return round(round(value / step) * step, max(0, -math.floor(math.log10(step))))
