"""Two figures: how estimators did on every domain, and where they say that a latent goes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from torch import Tensor

from zol.bench.occupancy import CELLS, Projection
from zol.bench.ratios_controls import CONTROLS
from zol.common.pictures import write_picture
from zol.report import Interval

PANELS = ("overlap", "ρ global", "ρ near", "regret near", "mean abs. error")


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


@dataclass(frozen=True)
class Places:
    """Where one latent goes, by several accounts: name → occupancy ``[cells]``."""

    domain: str
    task: str
    projection: Projection
    seen: Mapping[str, Tensor]


def draw_places(found: Sequence[Places], path: Path) -> None:
    """One row of maps per domain; brighter is more often, each map on its own scale."""
    columns = max(len(one.seen) for one in found)
    figure, axes = plt.subplots(
        len(found), columns, figsize=(1.9 * columns, 2.1 * len(found)), squeeze=False, layout="constrained"
    )
    for line, one in zip(axes, found, strict=True):
        x, y = one.projection.x, one.projection.y
        for axis in line[len(one.seen) :]:
            axis.set_axis_off()
        for axis, (name, occupancy) in zip(line, one.seen.items(), strict=False):
            picture = occupancy.reshape(CELLS, CELLS).sqrt().numpy()  # √: thin places are seen, too
            axis.imshow(picture, origin="lower", extent=(x.low, x.high, y.low, y.high), aspect="auto")
            axis.set_title(name, fontsize=8)
            axis.tick_params(labelsize=6)
        line[0].set_ylabel(f"{one.domain}, {one.task}\n{y.name}", fontsize=7)
        line[0].set_xlabel(x.name, fontsize=7)
    write_picture(figure, path, dpi=120)
    plt.close(figure)
