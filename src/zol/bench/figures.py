"""Figures of a benchmark report: improvement per task, gain against quality, and what hyperparameters do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zol.bench.ablation import Curve
from zol.bench.conditions import BASELINE
from zol.bench.quality import gains
from zol.bench.results import PairedResults
from zol.common.pictures import write_picture
from zol.report import Interval, bootstrap_all
from zol.report.statistics import difference

INK, GREY = "#222222", "#999999"


def _plot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def improvement_panels(grid: PairedResults, path: Path) -> Path:
    """One panel per domain: Δ to the baseline of every method on every task, with paired intervals."""
    plt = _plot()
    methods = [name for name in grid.methods if name != grid.baseline]
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, axes = plt.subplots(
            1,
            len(grid.domains),
            figsize=(1 + 3.2 * len(grid.domains), 1.2 + 0.32 * len(methods) * 2),
            squeeze=False,
        )
        for axis, (domain, scores) in zip(axes[0], grid.domains.items(), strict=True):
            axis.axvline(0.0, color=GREY, linewidth=0.8)
            for k, method in enumerate(methods):
                if method not in scores.values:
                    continue
                (pair,) = grid.pairs(method, [domain])
                for t in range(len(scores.tasks)):
                    one = pair[:, :, t : t + 1]
                    delta = bootstrap_all([one], {"Δ": difference}, resamples=500)["Δ"]
                    # Tasks side by side within a method's row.
                    _mark(axis, delta, -t - k / (len(methods) + 1.5), k, method if t == 0 else None)
            middle = len(methods) / (len(methods) + 1.5) / 2
            axis.set_yticks([-t - middle for t in range(len(scores.tasks))], scores.tasks)
            axis.set_title(f"{domain} ({scores.runs} seed{'s' * (scores.runs > 1)})", color=INK)
            axis.set_xlabel(f"return − return of {grid.baseline}")
            axis.spines[["top", "right"]].set_visible(False)
        handles = legend_of(axes[0], methods)
        figure.legend(
            handles.values(), handles, loc="lower center", ncol=min(len(handles), 6) or 1, frameon=False
        )
        figure.tight_layout(rect=(0, 0.12, 1, 1))
        return _save(plt, figure, path)


def legend_of(axes: Sequence[Any], methods: Sequence[str]) -> dict[str, Any]:
    """A mark of every method that some panel shows, in the order of ``methods``: panels may differ."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    return {name: found[name] for name in methods if name in found}


def _mark(axis: Any, interval: Interval, height: float, k: int, label: str | None) -> None:
    """Method k has a colour of its own; there are ten, and the next ten are diamonds."""
    axis.plot([interval.low, interval.high], [height, height], color=f"C{k % 10}", linewidth=1.5)
    shape = "oDsv"[k // 10 % 4]
    axis.plot(interval.value, height, shape, color=f"C{k % 10}", markersize=3.5, label=label)


def quality_panels(grid: PairedResults, domains: Sequence[str], path: Path) -> Path:
    """One panel per domain: Δ to the baseline of every method against the baseline's return, per model."""
    plt = _plot()
    methods = [name for name in grid.methods if name != grid.baseline]
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, axes = plt.subplots(1, len(domains), figsize=(1 + 3.6 * len(domains), 3.4), squeeze=False)
        for axis, domain in zip(axes[0], domains, strict=True):
            axis.axhline(0.0, color=GREY, linewidth=0.8)
            for k, method in enumerate(methods):
                if method not in grid.domains[domain].values:
                    continue
                points = gains(grid, domain, method)
                quality = [point.quality for point in points]
                middle = [point.gain.value for point in points]
                below = [point.gain.value - point.gain.low for point in points]
                above = [point.gain.high - point.gain.value for point in points]
                axis.errorbar(
                    quality, middle, (below, above), fmt="o-", color=f"C{k}", markersize=3.5, label=method
                )
            axis.set_title(f"{domain} ({grid.domains[domain].runs} models)", color=INK)
            axis.set_xlabel(f"mean return of {grid.baseline}")
            axis.set_ylabel(f"return − return of {grid.baseline}")
            axis.spines[["top", "right"]].set_visible(False)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncol=min(len(labels), 6) or 1, frameon=False)
        figure.tight_layout(rect=(0, 0.08, 1, 1))
        return _save(plt, figure, path)


def ablation_curves(curves: Mapping[str, Sequence[Curve]], path: Path) -> Path:
    """One panel per hyperparameter: Δ to plain FB against its value, averaged over all other settings."""
    plt = _plot()
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, axes = plt.subplots(
            1, len(curves), figsize=(2.6 * len(curves), 2.9), sharey=True, squeeze=False
        )
        for axis, (name, lines) in zip(axes[0], curves.items(), strict=True):
            for k, line in enumerate(lines):
                places = np.arange(len(line.values))
                low, high = ([getattr(i, side) for i in line.intervals] for side in ("low", "high"))
                axis.fill_between(places, low, high, color=f"C{k}", alpha=0.2, linewidth=0)
                middle = [i.value for i in line.intervals]
                axis.plot(places, middle, "o-", color=f"C{k}", markersize=3.5, label=line.label)
                axis.set_xticks(places, [f"{value:g}" for value in line.values])
            axis.axhline(0.0, color=GREY, linewidth=0.8)
            axis.set_title(name.replace("_", " "), color=INK)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][0].set_ylabel(f"return − return of {BASELINE}")
        axes[0][0].legend(frameon=False, fontsize=8)
        figure.tight_layout()
        return _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> Path:
    write_picture(figure, path, dpi=130, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return path
