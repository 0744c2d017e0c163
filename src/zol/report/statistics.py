"""Statistics of raw scores, with percentile bootstrap intervals.

Scores of a domain are arrays ``[..., runs, tasks, episodes]``: a *run* is a pretraining seed, episode e
starts from the same state for every method. A comparison of two puts them in front, method then baseline.
Tasks are the benchmark and stay fixed; runs and, within run and task, episodes are resampled, the same ones
for both sides of a comparison. With a single run an interval covers start states only.

Domains may have different numbers of runs. An average over domains is the mean of their means: every domain
counts the same, however many seeds it has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Statistic = Callable[[Sequence[Array]], Array]  # of domains, over their last three dimensions
RESAMPLES = 2000
AT_ONCE = 2_000_000  # numbers resampled together


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


def average(domains: Sequence[Array]) -> Array:
    """The mean over domains of their means."""
    return np.mean([values.mean(axis=(-3, -2, -1)) for values in domains], axis=0)


def method_average(domains: Sequence[Array]) -> Array:
    """The average of the method in comparisons ``[..., 2, runs, tasks, episodes]``."""
    return average([values[..., 0, :, :, :] for values in domains])


def baseline_average(domains: Sequence[Array]) -> Array:
    """The average of the baseline in such comparisons."""
    return average([values[..., 1, :, :, :] for values in domains])


def difference(domains: Sequence[Array]) -> Array:
    """Average of method minus baseline."""
    return method_average(domains) - baseline_average(domains)


def relative(domains: Sequence[Array]) -> Array:
    """The difference in per cent of the baseline's average."""
    baseline = baseline_average(domains)
    return 100.0 * difference(domains) / np.where(baseline == 0, np.nan, baseline)


def improvement(domains: Sequence[Array]) -> Array:
    """Share of paired episodes in which the method earns more than the baseline; ties count half."""
    return average(
        [(np.sign(values[..., 0, :, :, :] - values[..., 1, :, :, :]) + 1.0) / 2.0 for values in domains]
    )


def interquartile_mean(domains: Sequence[Array]) -> Array:
    """Mean of the middle half of all (run, task) means: one wild task or seed cannot carry it.

    Every domain weighs the same; a cell at the edge of the middle half counts with the part inside.
    """
    cells = [values.mean(axis=-1).reshape(*values.shape[:-3], -1) for values in domains]
    weights = np.concatenate([np.full(c.shape[-1], 1.0 / c.shape[-1] / len(cells)) for c in cells])
    values = np.concatenate(cells, axis=-1)
    order = np.argsort(values, axis=-1, kind="stable")
    upper = np.cumsum(weights[order], axis=-1)
    inside = np.clip(upper, 0.25, 0.75) - np.clip(upper - weights[order], 0.25, 0.75)
    middle = np.take_along_axis(values, order, axis=-1)
    return (inside * middle).sum(-1) / inside.sum(-1)


def method_interquartile_mean(domains: Sequence[Array]) -> Array:
    """The interquartile mean of the method in comparisons."""
    return interquartile_mean([values[..., 0, :, :, :] for values in domains])


def bootstrap_all(
    domains: Sequence[Array], statistics: Mapping[str, Statistic], seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """Several statistics of the same scores with their intervals, from the same resamples."""
    rng = np.random.default_rng(seed)
    at_once = max(1, AT_ONCE // sum(values.size for values in domains))
    drawn: dict[str, list[Array]] = {name: [] for name in statistics}
    for begin in range(0, resamples, at_once):
        count = min(at_once, resamples - begin)
        again = [_resample(values, count, rng) for values in domains]
        for name, statistic in statistics.items():
            drawn[name].append(statistic(again))
    found = {}
    for name, statistic in statistics.items():
        low, high = np.quantile(np.concatenate(drawn[name]), [0.025, 0.975])
        found[name] = Interval(float(statistic(domains)), float(low), float(high))
    return found


def bootstrap(values: Array, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean of ``[runs, tasks, episodes]`` over everything, with its interval."""
    return bootstrap_all([values], {"mean": average}, seed, resamples)["mean"]


def _resample(values: Array, count: int, rng: np.random.Generator) -> Array:
    """``count`` resamples of ``[..., runs, tasks, episodes]``, as a new first dimension."""
    runs, tasks, episodes = values.shape[-3:]
    lead = values.ndim - 3
    chosen = np.moveaxis(np.take(values, rng.integers(runs, size=(count, runs)), axis=lead), lead, 0)
    picks = rng.integers(episodes, size=(count, *[1] * lead, runs, tasks, episodes))
    return np.take_along_axis(chosen, picks, axis=-1)
