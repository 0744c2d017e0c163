"""How estimators did, one row of panels per domain: overlap, rank correlations, regret and error."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from zol.common.pictures import write_picture
from zol.report import Interval

PANELS = ("overlap", "ρ global", "ρ near", "regret near", "mean abs. error")
CONTROLS = ("data", "exact F", "rollouts")


def draw(found: Mapping[str, Mapping[str, Mapping[str, Interval | None]]], path: Path) -> None:
    """Means with intervals: domain → estimator → column → interval."""
    rows = max(len(estimators) for estimators in found.values())
    figure, axes = plt.subplots(
        len(found),
        len(PANELS),
        figsize=(2.6 * len(PANELS), (0.8 + 0.22 * rows) * len(found)),
        squeeze=False,
        layout="constrained",
    )
    for line, (domain, estimators) in zip(axes, found.items(), strict=True):
        names = list(estimators)
        for axis, title in zip(line, PANELS, strict=True):
            for y, name in enumerate(names):
                one = estimators[name].get(title)
                if one is not None:
                    axis.plot([one.low, one.high], [y, y], color="0.6", linewidth=1.5)
                    axis.plot(
                        one.value,
                        y,
                        "o",
                        markersize=4,
                        color="0.3" if name in CONTROLS else "C0",
                    )
            if title.startswith("ρ"):
                axis.axvline(0.0, color="0.8", linewidth=0.8, zorder=0)
            axis.set_yticks(range(len(names)), names if title == PANELS[0] else [""] * len(names), fontsize=7)
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.tick_params(axis="x", labelsize=7)
            axis.set_title(f"{domain}: {title}", fontsize=8)
            axis.spines[["top", "right"]].set_visible(False)
    write_picture(figure, path, dpi=120)
    plt.close(figure)
