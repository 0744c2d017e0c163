"""``zol train compare``: how many minutes runs took to a score, side by side."""

from pathlib import Path
from typing import Annotated

import tyro

from zol import report
from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.common.pictures import require_picture, write_picture
from zol.common.terminal import terminal
from zol.train.run_folder import METRICS, read_metrics
from zol.train.time_to_score import Curve, curve


def compare(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")],
    tasks: tuple[str, ...] = (),
    levels: tuple[float, ...] = (300.0, 450.0, 600.0),
    out: Path | None = None,
) -> None:
    """Minutes of training until the mean return of runs reaches some levels, and their curves in one picture.

    A level counts as reached at the first test from which on the run is never below it again; the first
    test above it stands in brackets where that was earlier. Tests are not counted as training.

    Args:
        runs: folders of runs, finished or not
        tasks: those whose returns are averaged; all that were tested, if none are named
        levels: mean returns to reach
        out: picture of the curves over minutes, such as time-to-score.png
    """
    if out is not None:
        require_picture(require_place(out, folder=False))
    if not runs:
        raise DataError("zol train compare wants folders of runs: zol train compare runs/a runs/b")
    curves: dict[str, Curve] = {}
    for run in runs:
        lines = read_metrics(run)
        if not lines:
            raise DataError(f"{run / METRICS} has no metrics yet: is {run} the --out of a training run?")
        curves[str(run) if len({r.name for r in runs}) < len(runs) else run.name] = curve(
            lines, tasks, str(run)
        )
    header = ["run", *(f"{level:g}" for level in levels), "last score", "steps", "minutes"]
    rows = [
        [
            name,
            *(_cell(found, level) for level in levels),
            f"{found.scores[-1]:.3g}",
            f"{found.steps[-1]:,}",
            f"{found.minutes[-1]:.1f}",
        ]
        for name, found in curves.items()
    ]
    console = terminal()
    over = ", ".join(tasks) if tasks else "all tasks"
    report.print_table(console, (header, rows), f"minutes of training until the mean return over {over} is …")
    if out is not None:
        _draw(curves, levels, over, out)
        console.print(f"the curves are in {out}", soft_wrap=True)


def _cell(found: Curve, level: float) -> str:
    reached, passed = found.reached(level), found.passed(level)
    if passed is None:
        return "–"
    if reached is None:
        return f"– ({passed:.1f})"
    return f"{reached:.1f}" if reached == passed else f"{reached:.1f} ({passed:.1f})"


def _draw(curves: dict[str, Curve], levels: tuple[float, ...], over: str, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for level in levels:
        axes.axhline(level, color="0.85", linewidth=0.8)
    for name, found in curves.items():
        axes.plot(found.minutes, found.scores, label=name, marker=".")
    axes.set(xlabel="minutes of training", ylabel=f"mean return over {over}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")
    write_picture(figure, out, dpi=150)
