"""``zol train show``: the learning curve of a run, also while it is still going on."""

import math
from pathlib import Path
from typing import Annotated

import tyro

from zol import checkpoint, report
from zol.checkpoint import zoo
from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.common.pictures import require_picture, write_picture
from zol.common.terminal import terminal
from zol.models import MODELS
from zol.train.run_folder import METRICS, Line, read_metrics, shown_metrics


def show(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    rows: int = 12,
    out: Path | None = None,
) -> None:
    """Returns and health of a run over its steps, from its metrics.jsonl.

    Args:
        run: folder of the run; a finished checkpoint or a name of the zoo tells what it remembers
        rows: how many steps to show, evenly spread
        out: picture of the returns, such as curve.png
    """
    if out is not None:
        require_picture(require_place(out, folder=False))
    run = zoo.find(run)
    lines = read_metrics(run) or _remembered(run)
    if not lines:
        raise DataError(f"{run / METRICS} has no metrics yet: is {run} the --out of a training run?")
    tested = [line for line in lines if "return/mean" in line]
    console = terminal()
    tasks = [name.removeprefix("return/") for name in (tested[-1] if tested else {}) if "return/" in name]
    if tested:
        table = [
            [f"{line['step']:,}", *_cells(line, [f"return/{t}" for t in tasks])]
            for line in _thin(tested, rows)
        ]
        if "random/mean" in tested[0]:
            table.insert(0, ["random", *_cells(tested[0], [f"random/{t}" for t in tasks])])
        report.print_table(console, (["step", *tasks], table), "mean returns")
    logged = [line for line in lines if "loss" in line]
    # Runs that do not say what to show are from a time when there was no other model.
    shown = shown_metrics(run) or MODELS["fb"].metrics
    table = [[f"{line['step']:,}", *_cells(line, list(shown.values()))] for line in _thin(logged, rows)]
    if table:
        report.print_table(
            console, (["step", *shown], table), "health (docs/metrics.md says what is healthy)"
        )
    if out is not None:
        _draw(tested, tasks, out)
        console.print(f"the curve is in {out}", soft_wrap=True)


def _remembered(folder: Path) -> list[Line]:
    """What a checkpoint that has left its run says of it: the first and the last test, the last losses."""
    if not (folder / "config.json").exists():
        return []
    facts = checkpoint.load(folder).facts
    found: dict[float, Line] = {}
    for line in [*(facts.get("returns") or []), *(facts.get("metrics") or [])]:
        found[line["step"]] = found.get(line["step"], {}) | line
    return [found[step] for step in sorted(found)]


def _cells(line: Line, names: list[str]) -> list[str]:
    return [f"{line[name]:.3g}" if name in line else "–" for name in names]


def _thin(lines: list[Line], rows: int) -> list[Line]:
    """At most ``rows`` of the lines, evenly spread, the first and the last among them."""
    if len(lines) <= rows:
        return lines
    last = len(lines) - 1
    return [lines[round(k * last / max(rows - 1, 1))] for k in range(rows)]


def _draw(tested: list[Line], tasks: list[str], out: Path) -> None:
    if not tested:
        raise DataError("this run was trained with --episodes 0: there are no returns to draw")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    steps = [line["step"] for line in tested]
    for task in tasks:
        (curve,) = axes.plot(steps, [line.get(f"return/{task}", math.nan) for line in tested], label=task)
        if f"random/{task}" in tested[0]:
            axes.axhline(tested[0][f"random/{task}"], color=curve.get_color(), linestyle=":", linewidth=0.8)
    axes.set(xlabel="gradient steps", ylabel="return (dotted: random actions)")
    axes.legend(frameon=False, fontsize="small")
    write_picture(figure, out, dpi=150)
