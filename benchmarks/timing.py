"""Fair timing: both sides run in one process, in turn, several times, and medians are compared.

A shared machine slows both sides alike when they alternate, so ratios hold where seconds do not.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter

Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Two ways to do ``units`` units of the same work; both callables do all of them."""

    name: str
    unit: str
    units: float
    ours: Run
    reference: Run
    reference_units: float | None = None
    """When the reference is too slow to do everything: how much it does."""


@dataclass(frozen=True)
class Result:
    """Units per second of both sides, and how many times faster ours is."""

    case: str
    unit: str
    ours: float
    reference: float
    ratio: float


def compare(cases: list[Case], repeats: int = 5, as_json: bool = False) -> list[Result]:
    """Time every case with interleaved repeats and print a table, or one JSON object per line."""
    results = []
    for case in cases:
        ours, reference = [], []
        for repeat in range(repeats + 1):
            pair = seconds(case.ours), seconds(case.reference)
            if repeat:  # the first round only warms caches up
                ours.append(pair[0])
                reference.append(pair[1])
        fast = case.units / median(ours)
        slow = (case.reference_units or case.units) / median(reference)
        # The median of ratios, not the ratio of medians: each pair met the same machine.
        share = (case.reference_units or case.units) / case.units
        ratio = median(r / o for o, r in zip(ours, reference, strict=True)) / share
        results.append(Result(case.name, case.unit, fast, slow, ratio))
        print(json.dumps(asdict(results[-1])) if as_json else row(results[-1]), flush=True)
    return results


def seconds(run: Run) -> float:
    """Wall-clock time of one call."""
    start = perf_counter()
    run()
    return perf_counter() - start


def row(result: Result) -> str:
    """One line of the table."""
    speeds = f"{result.ours:>14,.0f} {result.reference:>14,.0f}  {result.unit}"
    return f"{result.case:<54} {speeds:<50} {result.ratio:8.2f}×"
