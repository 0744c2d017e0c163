"""Estimates against truth, one panel per domain and estimator."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from zol.common.pictures import write_picture


def draw(points: Sequence[Mapping[str, object]], estimators: Sequence[str], path: Path) -> None:
    """Scatter of every latent: what each estimator said it would earn, and what it earned."""
    domains = list(dict.fromkeys(str(point["domain"]) for point in points))
    figure, axes = plt.subplots(
        len(domains),
        len(estimators),
        figsize=(3 * len(estimators), 2.8 * len(domains)),
        squeeze=False,
        layout="constrained",
    )
    for row, domain in zip(axes, domains, strict=True):
        own = [point for point in points if point["domain"] == domain]
        for axis, estimator in zip(row, estimators, strict=True):
            for task in dict.fromkeys(str(point["task"]) for point in own):
                some = [point for point in own if point["task"] == task and estimator in point]
                axis.scatter(
                    [float(str(p[estimator])) for p in some],
                    [float(str(p["true"])) for p in some],
                    s=8,
                    alpha=0.7,
                    label=task,
                )
            axis.axline((0, 0), slope=1, color="0.7", linewidth=0.8, zorder=0)
            axis.set_title(f"{domain}: {estimator}", fontsize=9)
            axis.set_xlabel("estimated reward per step", fontsize=8)
        row[0].set_ylabel("true reward per step", fontsize=8)
        row[0].legend(fontsize=6)
    write_picture(figure, path, dpi=110)
    plt.close(figure)
