"""Raw scores of several methods, ``runs × tasks × episodes``, and the plain tables of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from zol.common.errors import DataError
from zol.common.files import write_bytes
from zol.common.reading import read_json
from zol.data.sources.npz import read_npz_file
from zol.report.statistics import Array, Interval, bootstrap, number

Cells = tuple[list[str], list[list[str]]]  # header, rows


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
        """How many pretraining seeds there are."""
        return next(iter(self.values.values())).shape[0]

    @property
    def methods(self) -> list[str]:
        """Names, in the order in which they were given."""
        return list(self.values)

    def save(self, path: str | Path) -> None:
        """Write arrays and facts as ``.npz`` and ``.json`` side by side."""
        base, data = Path(path), BytesIO()
        arrays: dict[str, Any] = {f"values/{name}": value for name, value in self.values.items()}
        np.savez_compressed(data, **arrays)
        write_bytes(base.with_suffix(".npz"), data.getvalue())
        description = {"tasks": self.tasks, "methods": self.methods, "facts": dict(self.facts)}
        write_bytes(base.with_suffix(".json"), (json.dumps(description, indent=2) + "\n").encode())

    @staticmethod
    def load(path: str | Path) -> "Scores":
        """Read what :meth:`save` wrote."""
        base = Path(path)
        description = read_json(base.with_suffix(".json"), DataError)
        arrays = read_npz_file(base.with_suffix(".npz"))
        try:
            values = {name: arrays[f"values/{name}"] for name in description["methods"]}
            return Scores(tuple(description["tasks"]), values, dict(description["facts"]))
        except (KeyError, TypeError) as error:
            raise DataError(f"{base} does not hold scores that zol wrote: {error!r}") from error


def paired(scores: Scores, method: str, baseline: str) -> Interval:
    """Mean difference to a baseline on the same runs, tasks and start states."""
    return bootstrap(scores.values[method] - scores.values[baseline])


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


def caveat(scores: Scores) -> str:
    """What the intervals do and do not cover."""
    runs, tasks, episodes = next(iter(scores.values.values())).shape
    size = f"{runs} pretraining seed{'s' * (runs > 1)} × {tasks} tasks × {episodes} paired episodes"
    if runs == 1:
        return f"{size}; intervals cover start states only, not the variation between pretraining seeds"
    return f"{size}; intervals resample seeds and start states"
