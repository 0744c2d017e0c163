"""How far estimates of whole imagined episodes were from what was earned, read off a store.

``zol adapt`` prints the estimate of the method ``episodes`` as the mean reward per step of an episode, with
an interval, which comes from here: ``zol report`` writes ``calibration.json`` from the cells of that method,
and ``zol/value/episodes.json`` is such a file. Errors count with both signs, so that the interval is
symmetric: which way imagination errs differs from world to world. So does how far, which is why every world
has bounds of its own, tried on each of its models by those of the others. Tasks on which the learned world is
not believed have no estimate and do not count.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zol.bench.ratios_intervals import Errors, bounds, held_out_models, summary
from zol.bench.store import Result
from zol.report import Cells

METHOD = ESTIMATOR = "episodes"


def judged(rows: Sequence[Result]) -> list[tuple[Result, float]]:
    """Cells with an estimate of whole episodes, and true minus estimated reward per step."""
    return [
        (row, float(row.returns.mean() / row.diagnostics["horizon"] - row.estimate))
        for row in rows
        if row.key.method == METHOD and row.estimate is not None and row.diagnostics["believed"]
    ]


def episode_errors(rows: Sequence[Result]) -> Errors:
    """True minus estimated reward per step, with both signs, by world and model."""
    found: dict[str, dict[str, list[float]]] = {}
    for row, off in judged(rows):
        found.setdefault(row.key.domain, {}).setdefault(row.key.model, []).append(off)
    return {
        world: [np.array([*own, *(-off for off in own)]) for own in models.values()]
        for world, models in found.items()
    }


def calibration(rows: Sequence[Result]) -> dict[str, Any]:
    """What ``zol/value/episodes.json`` holds; nothing where there are no estimates."""
    errors = episode_errors(rows)
    if not errors:
        return {}
    worlds = {}
    for world, models in errors.items():
        low, high = bounds({world: models})
        share = held_out_models(models)
        if share is not None:
            worlds[world] = {"low": round(low, 4), "high": round(high, 4), "held": round(share, 4)}
    return {ESTIMATOR: summary(errors) | {"worlds": worlds}}


def calibration_table(rows: Sequence[Result]) -> Cells:
    """One line per world: how far off estimates were, and how often intervals made elsewhere held."""
    found = calibration(rows)[ESTIMATOR]
    lines = []
    for world, size in found["mean_abs_error"].items():
        own = [off for row, off in judged(rows) if row.key.domain == world]
        elsewhere = f"{found['held_out'][world]:.0%}" if world in found["held_out"] else ""
        here = found["worlds"].get(world)
        interval = ["", ""] if here is None else [f"±{here['high']:.2f}", f"{here['held']:.0%}"]
        lines.append([world, str(len(own)), f"{size:.3f}", f"{np.mean(own):+.3f}", *interval, elsewhere])
    header = ["world", "estimates", "mean absolute error", "true − estimated"]
    header += ["95 % within", "of a model left out", "of a world left out"]
    return header, lines
