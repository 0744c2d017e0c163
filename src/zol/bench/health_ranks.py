"""Which health numbers predict returns? Rank correlations over the tests of many trainings.

Health numbers (zol.train.health) need no simulator, so one that goes with returns can choose between models
offline. Three correlations per number, with the mean return of the same test:

    everywhere     over all tests of all trainings: includes that both change while training goes on
    within         over the tests of one recipe, all its seeds; the mean over recipes
    at the end     over the last tests alone: between finished models, which is the question that matters
"""

from collections.abc import Sequence

import torch

from zol.bench.ranking import spearman
from zol.bench.trials import Outcome, Point, mean_return
from zol.bench.trials_report import MISSING, cell, groups, mean
from zol.report import Cells

LEAST = 4  # tests that a rank correlation is computed from


def health_ranks(outcomes: Sequence[Outcome], tasks: Sequence[str]) -> Cells:
    """A row per health number: its rank correlations with the mean return, the most telling one first."""
    names = sorted({name for one in outcomes for test in one.tests for name in test.health})
    tests = [test for one in outcomes for test in one.tests]
    ends = [one.tests[-1] for one in outcomes if not one.failed]
    rows: list[tuple[float, list[str]]] = []
    for name in names:
        within = [
            _correlation(name, [test for one in own for test in one.tests], tasks)
            for own in groups(outcomes).values()
        ]
        inside = mean([value for value in within if value is not None])
        everywhere, at_end = _correlation(name, tests, tasks), _correlation(name, ends, tasks)
        strength = max((abs(value) for value in (at_end, inside) if value is not None), default=-1.0)
        rows.append((-strength, [name, *(cell(value, 2) for value in (everywhere, inside, at_end))]))
    counted = [str(len(_pairs(names[0], some, tasks))) for some in (tests, ends)] if names else [MISSING] * 2
    rows.sort(key=lambda pair: pair[0])
    last = ["tests", counted[0], counted[0], counted[1]]
    return ["health number", "everywhere", "within", "at the end"], [*(row for _, row in rows), last]


def _pairs(name: str, tests: Sequence[Point], tasks: Sequence[str]) -> list[tuple[float, float]]:
    found = [(test.health.get(name), mean_return(test, tasks)) for test in tests]
    return [(x, y) for x, y in found if x is not None and y is not None]


def _correlation(name: str, tests: Sequence[Point], tasks: Sequence[str]) -> float | None:
    pairs = _pairs(name, tests, tasks)
    if len(pairs) < LEAST:
        return None
    x, y = torch.tensor(pairs, dtype=torch.float64).unbind(-1)
    return spearman(x, y)
