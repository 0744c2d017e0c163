"""How well each estimator did against true returns, so that no estimate is printed without it.

``zol bench ratios`` writes the table that comes with the library, ``accuracy.json``:

    {"protocol": {...},
     "all": {"ratio": {"walker": {"spearman_near": …, "spearman_global": …, "mean_abs_error": …, …}, …}, …},
     "few": {"ratio": …, "fqe": …},
     "near": {"ratio": {"level": 0.95, "low": …, "high": …, "held_out": {"walker": …}, …}, …}}

by estimator and domain. Estimators that train networks for each latent were asked about few latents; all were
asked about these, so that there they can be compared. ``near`` is about latents near a task's prompt, on that
task, which is what people ask about: how far off estimates were, and between which bounds of true minus
estimated 95 % of them lay (zol.bench.ratios_intervals). All of it is in rewards of range one, as those of the
benchmark's tasks. What is not in the table has not been measured, and the sentences below say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zol.common.reading import read_json

FILE = Path(__file__).with_name("accuracy.json")
EPISODES = Path(__file__).with_name(
    "episodes.json"
)  # of models of every kind, by zol bench zoo and zol report
BENCHMARK = "zol bench ratios"
HELD = 0.8  # least share of true values that intervals must hold in worlds they were not made from


@dataclass(frozen=True)
class Accuracy:
    """Of one estimator in one domain, against true returns; None where a number is missing."""

    spearman_global: float | None = None  # rank correlation over all kinds of latents,
    spearman_near: float | None = None  # and near a prompt's latent
    error_near: float | None = None  # mean absolute error near a prompt on its own task, in reward per step,
    mean_abs_error: float | None = None  # and over all kinds of latents

    def __str__(self) -> str:
        parts = []
        if self.spearman_global is not None:
            parts.append(f"rank correlation {self.spearman_global:.2f} with true returns")
        if self.spearman_near is not None:
            parts.append(f"{self.spearman_near:.2f} near a prompt")
        if self.error_near is not None:
            parts.append(f"off by {self.error_near:.2f} per step there on average (rewards from 0 to 1)")
        elif self.mean_abs_error is not None:
            parts.append(f"off by {self.mean_abs_error:.2f} per step on average (rewards from 0 to 1)")
        return ", ".join(parts)


@dataclass(frozen=True)
class Bounds:
    """Between which a share of true values lay, relative to estimates, for rewards of range one."""

    level: float  # the share on the models that gave the bounds
    low: float
    high: float
    held_out: Mapping[str, float]  # the share in worlds whose models did not
    world: str = ""  # bounds of this world alone; ``held_out`` is then of its models, each left out in turn

    @property
    def hold(self) -> bool:
        """Whether they held wherever they were tried."""
        return bool(self.held_out) and min(self.held_out.values()) >= HELD

    def __str__(self) -> str:
        if not self.held_out:
            return "no interval: bounds of its errors were tried in no other world"
        worst = min(self.held_out, key=lambda world: self.held_out[world])
        share = f"{self.held_out[worst]:.0%} of true values on {worst}"
        if self.world:
            made = f"made from other models of {self.world}"
            return (
                f"its interval, {made}, held {share}"
                if self.hold
                else f"no interval: one {made} held {share}"
            )
        if self.hold:
            return f"its interval, made from other worlds, held {share} and more elsewhere"
        return f"no interval: one made from other worlds held only {share}"


def bounds(estimator: str, domain: str = "") -> Bounds | None:
    """The measured bounds of an estimator's errors, of the world alone if it has its own; or None."""
    found = _near(estimator)
    if not found:
        return None
    if (own := found.get("worlds", {}).get(domain)) is not None:
        return Bounds(found["level"], own["low"], own["high"], {domain: own["held"]}, domain)
    return Bounds(found["level"], found["low"], found["high"], found["held_out"])


def likely(estimator: str, mean: Tensor, least: Tensor, most: Tensor, domain: str = "") -> Tensor | None:
    """The ends ``[2, K]`` between which the true values of estimates ``[K]`` lie, if that can be said.

    ``least`` and ``most`` are the smallest and largest reward in the data, which no mean of them leaves.
    """
    if (found := bounds(estimator, domain)) is None or not found.hold:
        return None
    ends = [mean + off * (most - least) for off in (found.low, found.high)]
    return torch.stack([torch.minimum(torch.maximum(end, least), most) for end in ends])


def accuracy(estimator: str, domain: str, pools: Sequence[str] = ("all", "few")) -> Accuracy | None:
    """What was measured of an estimator in a domain, on the first of the pools; None if nothing was."""
    near = _near(estimator).get("mean_abs_error", {}).get(domain)
    if of_practised(estimator):
        return None if near is None else Accuracy(error_near=float(near))
    for pool in pools:
        found = _table(FILE).get(pool, {}).get(estimator, {}).get(domain)
        if found:
            known = {**found, "error_near": near if pool == "all" else None}
            fields = [name for name in Accuracy.__dataclass_fields__ if known.get(name) is not None]
            return Accuracy(**{name: float(known[name]) for name in fields})
    return None


def of_practised(estimator: str) -> bool:
    """Whether its accuracy was measured on models that practised; that of others was on FB models."""
    return estimator in _table(EPISODES)


def _near(estimator: str) -> Mapping[str, Any]:
    """What is known of its errors near prompts, or on whole episodes; nothing if nothing is."""
    known: Mapping[str, Any] = {**_table(FILE).get("near", {}), **_table(EPISODES)}
    found: Mapping[str, Any] = known.get(estimator, {})
    return found


def told(estimator: str, domain: str) -> str:
    """Which estimator made a number and how well it did, in a few words: what every printed estimate says."""
    found = accuracy(estimator, domain)
    where = f"on {domain}" if domain else "in this world"
    if found is None:
        return f"by {estimator}, whose accuracy {where} was not measured"
    return f"by {estimator}; {where}: {found}"


def advice(estimators: Iterable[str], domain: str) -> str:
    """One sentence: which of these estimators to believe in this domain, and why."""
    names = tuple(estimators)
    known, errors = _compared(names, domain)
    where = f"on {domain}" if domain else "in this world"
    if not errors:
        return (
            f"Which of them to believe {where} is not known: {BENCHMARK} has not compared them with true "
            "returns there."
        )
    best = min(errors, key=lambda name: errors[name])
    rest = [name for name in names if name not in errors]
    missing = f" Not measured there: {', '.join(rest)}." if rest else ""
    return (
        f"Believe {best}: {where} it came nearest to true returns in {BENCHMARK}, on the latents that all of "
        f"them were asked about ({known[best]}).{missing}"
    )


def _compared(names: Sequence[str], domain: str) -> tuple[dict[str, Accuracy], dict[str, float]]:
    """Accuracies and mean errors on latents that all were asked about: near prompts, all kinds, or the few.

    Of the few those that are known, because not every estimator was asked about any latent.
    """
    errors: dict[str, float] = {}
    for pool, field in (("all", "error_near"), ("all", "mean_abs_error"), ("few", "mean_abs_error")):
        found = {name: one for name in names if (one := accuracy(name, domain, [pool])) is not None}
        sizes = {name: getattr(one, field) for name, one in found.items()}
        errors = {name: size for name, size in sizes.items() if size is not None}
        if len(errors) == len(names):
            break
    return found, errors


@lru_cache
def _table(path: Path) -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]:
    """pool → estimator → domain → numbers."""
    return read_json(path) if path.is_file() else {}
