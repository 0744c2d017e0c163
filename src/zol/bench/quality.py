"""Does a search gain more on better models? Gains against what each model earns by itself.

A domain with several models, such as the checkpoints that a run kept (``zol train NAME --keep-every``), gives
one point per model and method: the baseline's mean return over the tasks, and the method's paired difference
to it. Models of one run are no independent samples, so a trend here holds for that run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from zol.bench.results import PairedResults
from zol.report import Cells, Interval, bootstrap_all, number
from zol.report.statistics import difference

LEAST = 4  # models of a domain that show a trend


@dataclass(frozen=True)
class ModelGain:
    """What a method changes on one model."""

    quality: float
    """mean return of the baseline over the tasks"""
    gain: Interval


def with_many_models(grid: PairedResults) -> tuple[str, ...]:
    """Domains that have models enough."""
    return tuple(domain for domain, scores in grid.domains.items() if scores.runs >= LEAST)


def gains(grid: PairedResults, domain: str, method: str) -> list[ModelGain]:
    """A point per model, the weakest first."""
    (pair,) = grid.pairs(method, [domain])
    found = []
    for run in range(pair.shape[1]):
        own = pair[:, run : run + 1]
        gain = bootstrap_all([own], {"gain": difference}, resamples=500)["gain"]
        found.append(ModelGain(float(own[1].mean()), gain))
    return sorted(found, key=lambda point: point.quality)


def quality_table(grid: PairedResults, domains: Sequence[str]) -> Cells:
    """A row per method and domain: its gain on the weaker and on the stronger half of the models."""
    rows = []
    for domain in domains:
        for method in grid.methods:
            if method == grid.baseline or method not in grid.domains[domain].values:
                continue
            points = gains(grid, domain, method)
            half = len(points) // 2
            weak, strong = points[:half], points[-half:]
            rows.append([domain, method, str(len(points)), *map(_means, (weak, strong))])
    return ["domain", "method", "models", "weaker half", "stronger half"], rows


def _means(points: Sequence[ModelGain]) -> str:
    """Mean gain of some models, and what they earn without it."""
    gain = sum(point.gain.value for point in points) / len(points)
    quality = sum(point.quality for point in points) / len(points)
    return f"{gain:+.1f} (of {number(quality)})"
