"""Numbers one can trust: raw scores, bootstrap intervals, paired differences, tables.

Scores are kept raw, ``runs × tasks × episodes`` per method. A *run* is a pretraining seed; episode e starts
from the same state for every method, so differences are paired. Intervals are percentile bootstraps that
resample runs and, within each task, episodes; with a single run they cover start states only, and every
table says so.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from zol.errors import DataError

Array = NDArray[np.float64]
RESAMPLES = 2000


def number(value: float) -> str:
    """Three decimals for normalised scores, one for returns in the hundreds."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        # Bounds without their leading zero: tables fit a terminal of 80 columns.
        low, high = (
            number(x).replace("0.", ".", 1) if abs(x) < 1 else number(x) for x in (self.low, self.high)
        )
        return f"{number(self.value)} [{low}, {high}]"


@dataclass(frozen=True)
class Scores:
    """Raw episode scores of several methods on the same tasks, runs and start states."""

    tasks: tuple[str, ...]
    values: Mapping[str, Array]  # method → [runs, tasks, episodes]
    facts: Mapping[str, Any] = field(default_factory=dict)  # seeds, command, hardware, commit, …

    def __post_init__(self) -> None:
        shapes = {name: value.shape for name, value in self.values.items()}
        if len(set(shapes.values())) != 1:
            raise DataError(
                f"paired scores need one shape [runs, tasks, episodes] for all methods, got {shapes}"
            )
        runs, tasks, episodes = next(iter(shapes.values()))
        if tasks != len(self.tasks) or runs * episodes == 0:
            raise DataError(f"scores of {tasks} tasks do not fit the {len(self.tasks)} names {self.tasks}")

    @property
    def runs(self) -> int:
        """Pretraining seeds."""
        return next(iter(self.values.values())).shape[0]

    @property
    def methods(self) -> list[str]:
        """Names, in the order in which they were given."""
        return list(self.values)

    def save(self, path: str | Path) -> None:
        """Write arrays and facts as ``.npz`` and ``.json`` side by side."""
        base = Path(path)
        base.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {f"values/{name}": value for name, value in self.values.items()}
        np.savez_compressed(base.with_suffix(".npz"), **arrays)
        description = {"tasks": self.tasks, "methods": self.methods, "facts": dict(self.facts)}
        base.with_suffix(".json").write_text(json.dumps(description, indent=2) + "\n")

    @staticmethod
    def load(path: str | Path) -> "Scores":
        """Read what :meth:`save` wrote."""
        base = Path(path)
        description = json.loads(base.with_suffix(".json").read_text())
        with np.load(base.with_suffix(".npz"), allow_pickle=False) as file:
            values = {name: file[f"values/{name}"] for name in description["methods"]}
        return Scores(tuple(description["tasks"]), values, description["facts"])


def bootstrap(values: Array, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean of ``[runs, tasks, episodes]`` over everything, with its interval.

    Tasks are the benchmark and stay fixed; runs and, within run and task, episodes are resampled.
    """
    runs, tasks, episodes = values.shape
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for k in range(resamples):
        chosen = values[rng.integers(runs, size=runs)]
        picks = rng.integers(episodes, size=(runs, tasks, episodes))
        means[k] = np.take_along_axis(chosen, picks, axis=2).mean()
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def paired(scores: Scores, method: str, baseline: str) -> Interval:
    """Mean difference to a baseline on the same runs, tasks and start states."""
    return bootstrap(scores.values[method] - scores.values[baseline])


Cells = tuple[list[str], list[list[str]]]  # header, rows


def summary(scores: Scores, baseline: str, extra: Mapping[str, Sequence[str]] | None = None) -> Cells:
    """One row per method: mean with interval, paired difference to the baseline, and ``extra`` columns."""
    extra = extra or {}
    rows = []
    for k, method in enumerate(scores.methods):
        mean = bootstrap(scores.values[method])
        difference = "" if method == baseline else str(paired(scores, method, baseline))
        rows.append([method, str(mean), difference, *(column[k] for column in extra.values())])
    return ["method", "mean [95 %]", f"Δ {baseline} [95 %]", *extra], rows


def per_task(scores: Scores) -> Cells:
    """One row per task, one column per method: plain means."""
    means = {method: values.mean(axis=(0, 2)) for method, values in scores.values.items()}
    rows = [[task, *(number(means[m][t]) for m in scores.methods)] for t, task in enumerate(scores.tasks)]
    return ["task", *scores.methods], rows


def table(cells: Cells, title: str = "", caption: str = "") -> Table:
    """Cells as a table for the terminal."""
    grid = Table(
        title=title or None,
        caption=caption or None,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for k, name in enumerate(cells[0]):
        grid.add_column(name, justify="left" if k == 0 else "right", no_wrap=True)
    for row in cells[1]:
        grid.add_row(*row)
    return grid


def markdown(cells: Cells) -> str:
    """Cells as a Markdown table."""
    columns, rows = cells
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def caveat(scores: Scores) -> str:
    """What the intervals do and do not cover."""
    runs, tasks, episodes = next(iter(scores.values.values())).shape
    size = f"{runs} pretraining seed{'s' * (runs > 1)} × {tasks} tasks × {episodes} paired episodes"
    if runs == 1:
        return f"{size}; intervals cover start states only, not the variation between pretraining seeds"
    return f"{size}; intervals resample seeds and start states"
