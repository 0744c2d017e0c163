r"""How far true values lie from estimates near a prompt: intervals that hold where they were not fitted.

An estimator's own interval says how well it knows its own mean, and hardly ever holds the truth. What does is
a table of its errors (split conformal prediction): of latents near a task's prompt, on that task, which is
what people ask about, let

    δ = J_true − J_estimated        in rewards of range one
    J ∈ [J_estimated + q_{(1−c)/2}(δ), J_estimated + q_{(1+c)/2}(δ)]          for a level c

with quantiles in which every world weighs the same, and every model of a world. Errors of one model, and of
one world, resemble each other, so what such an interval is worth is asked of worlds: its coverage in each of
them is that of bounds from the others alone. zol prints the interval of an estimator that held four of five
true values even in the worst of them (zol.value.accuracy).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zol.bench.ratios_controls import CONTROLS
from zol.bench.ratios_judge import ALL, Judgement

LEVEL = 0.95
Errors = Mapping[str, Sequence[NDArray[np.float64]]]
"""δ by world, one array for every model"""


def errors_near(lines: Sequence[Judgement], pool: str = ALL) -> dict[str, Errors]:
    """δ of every estimator near all prompts, as far as the lines hold them."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for line in lines:
        if line.pool == pool and line.off_near and line.estimator not in CONTROLS:
            models = found.setdefault(line.estimator, {}).setdefault(line.domain, {})
            models.setdefault(line.model, []).extend(line.off_near)
    return {
        name: {world: [np.array(own) for own in models.values()] for world, models in worlds.items()}
        for name, worlds in found.items()
    }


def bounds(errors: Errors, level: float = LEVEL) -> tuple[float, float]:
    """The two quantiles of δ between which the level lies."""
    values, weights = [], []
    for models in errors.values():
        for own in models:
            values.append(own)
            weights.append(np.full(len(own), 1.0 / (len(own) * len(models) * len(errors))))
    low, high = (
        float(np.quantile(np.concatenate(values), q, weights=np.concatenate(weights), method="inverted_cdf"))
        for q in ((1 - level) / 2, (1 + level) / 2)
    )
    return low, high


def held_out(errors: Errors, level: float = LEVEL) -> dict[str, float]:
    """The share of every world's δ within bounds that the other worlds gave; nothing for a single world."""
    found = {}
    for world, models in errors.items():
        others = {name: rest for name, rest in errors.items() if name != world}
        if others:
            low, high = bounds(others, level)
            found[world] = float(np.mean([np.mean((own >= low) & (own <= high)) for own in models]))
    return found


def held_out_models(models: Sequence[NDArray[np.float64]], level: float = LEVEL) -> float | None:
    """The mean share of a model's δ within bounds that the other models of its world gave; None for one."""
    if len(models) < 2:
        return None
    shares = []
    for k, own in enumerate(models):
        low, high = bounds({"": [other for j, other in enumerate(models) if j != k]}, level)
        shares.append(np.mean((own >= low) & (own <= high)))
    return float(np.mean(shares))


def calibration(lines: Sequence[Judgement], level: float = LEVEL) -> dict[str, dict[str, Any]]:
    """By estimator: bounds of δ, what they held in worlds that were left out, and the mean size of δ."""
    return {name: summary(errors, level) for name, errors in errors_near(lines).items()}


def summary(errors: Errors, level: float = LEVEL) -> dict[str, Any]:
    """Of one estimator: bounds of δ, what they held in worlds that were left out, and the mean size of δ."""
    low, high = bounds(errors, level)
    return {
        "level": level,
        "low": round(low, 4),
        "high": round(high, 4),
        "held_out": {world: round(share, 4) for world, share in held_out(errors, level).items()},
        "mean_abs_error": {
            world: round(float(np.mean([np.abs(own).mean() for own in models])), 4)
            for world, models in errors.items()
        },
        "models": {world: len(models) for world, models in errors.items()},
    }
