"""How well each estimator did against true returns, so that no estimate is printed without it.

``zol bench ratios`` writes the table that comes with the library, ``accuracy.json``:

    {"protocol": {...},
     "all": {"ratio": {"walker": {"spearman_near": …, "spearman_global": …, "mean_abs_error": …, …}, …}, …},
     "few": {"ratio": …, "fqe": …}}

by estimator and domain. Estimators that train networks for each latent were asked about few latents; all were
asked about these, so that there they can be compared. What is in neither has not been measured, and the
sentences below say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from zol.common.reading import read_json

FILE = Path(__file__).with_name("accuracy.json")
BENCHMARK = "zol bench ratios"


@dataclass(frozen=True)
class Accuracy:
    """Of one estimator in one domain, against true returns; None where a number is missing."""

    spearman_global: float | None = None  # rank correlation over all kinds of latents,
    spearman_near: float | None = None  # and near a prompt's latent
    mean_abs_error: float | None = None  # in reward per step
    regret: float | None = None  # true reward per step that its first choice leaves
    coverage: float | None = None  # share of its 95 % intervals that hold the truth

    def __str__(self) -> str:
        parts = []
        if self.spearman_global is not None:
            parts.append(f"rank correlation {self.spearman_global:.2f} with true returns")
        if self.spearman_near is not None:
            parts.append(f"{self.spearman_near:.2f} near a prompt")
        if self.mean_abs_error is not None:
            parts.append(f"off by {self.mean_abs_error:.2f} per step on average")
        if self.coverage is not None:
            parts.append(f"{self.coverage:.0%} of its 95 % intervals hold the truth")
        return ", ".join(parts)


def accuracy(estimator: str, domain: str, pools: Sequence[str] = ("all", "few")) -> Accuracy | None:
    """What was measured of an estimator in a domain, on the first of the pools; None if nothing was."""
    for pool in pools:
        found = _table(FILE).get(pool, {}).get(estimator, {}).get(domain)
        if found:
            fields = [name for name in Accuracy.__dataclass_fields__ if found.get(name) is not None]
            return Accuracy(**{name: float(found[name]) for name in fields})
    return None


def told(estimator: str, domain: str) -> str:
    """Which estimator made a number and how well it did, in a few words: what every printed estimate says."""
    found = accuracy(estimator, domain)
    where = f"on {domain}" if domain else "in this world"
    if found is None:
        return f"by {estimator}, whose accuracy {where} was not measured"
    return f"by {estimator}; {where}: {found}"


def advice(estimators: Iterable[str], domain: str) -> str:
    """One sentence: which of these estimators to believe in this domain, and why.

    They are compared on latents that all of them were asked about.
    """
    names = tuple(estimators)
    whole = {name: accuracy(name, domain, ["all"]) for name in names}
    known = whole if all(whole.values()) else {name: accuracy(name, domain, ["few"]) for name in names}
    errors = {
        name: found.mean_abs_error
        for name, found in known.items()
        if found is not None and found.mean_abs_error is not None
    }
    where = f"on {domain}" if domain else "in this world"
    if not errors:
        return (
            f"Which of them to believe {where} is not known: {BENCHMARK} has not compared them with true "
            "returns there."
        )
    best = min(errors, key=lambda name: errors[name])
    rest = [name for name in known if name not in errors]
    missing = f" Not measured there: {', '.join(rest)}." if rest else ""
    return f"Believe {best}: {where} it came nearest to true returns in {BENCHMARK} ({known[best]}).{missing}"


@lru_cache
def _table(path: Path) -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]:
    """pool → estimator → domain → numbers."""
    return read_json(path) if path.is_file() else {}
