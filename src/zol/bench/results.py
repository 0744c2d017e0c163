"""From rows of the store to paired scores: one :class:`PairedResults` per benchmark.

Only what can be compared fairly gets in: a method is shown on a domain if it has been run on every task and
every model that the baseline has been run on there. What is left out is said.

The baseline is what the benchmark names. Unless it says otherwise that is plain FB on FB models, and in a
store without any, the same prompt on the first kind of model that it has. Methods on models of another kind
are columns of their own, ``hilp: least-squares``, paired by start states and by pretraining seed: those
models must have the seeds that the baseline has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zol.adapt import METHODS, find_method
from zol.adapt.paper_settings import TASKS
from zol.bench.benchmark import baseline_of, tasks_of
from zol.bench.conditions import BASELINE, split_kind
from zol.bench.store import Result, Store
from zol.common.errors import DataError
from zol.common.reading import parse_json
from zol.report import Array, Scores


@dataclass(frozen=True)
class PairedResults:
    """Comparable results of one benchmark."""

    benchmark: str
    domains: Mapping[str, Scores]
    cells: Mapping[tuple[str, str], Sequence[Result]]  # (domain, method) → its rows
    notes: tuple[str, ...]  # what was left out

    @property
    def baseline(self) -> str:
        """The method that all are compared with."""
        return baseline_of(self.benchmark)

    @property
    def methods(self) -> list[str]:
        """Methods that are complete on at least one domain, in the order of the method table."""
        return _in_order(name for scores in self.domains.values() for name in scores.methods)

    def everywhere(self, method: str) -> bool:
        """Whether the method is complete on all domains, so that it has an average over them."""
        return all(method in scores.values for scores in self.domains.values())

    def pairs(self, method: str, domains: Sequence[str] | None = None) -> list[Array]:
        """Method and baseline ``[2, runs, tasks, episodes]`` per domain."""
        return [
            np.stack([self.domains[d].values[method], self.domains[d].values[self.baseline]])
            for d in domains or self.domains
        ]


def in_paper_order(domains: Sequence[str]) -> list[str]:
    """Domains as the paper lists them, others after them."""
    return sorted(domains, key=lambda d: (list(TASKS).index(d) if d in TASKS else 99, d))


def gather(store: Store, benchmark: str) -> PairedResults:
    """All comparable results of a benchmark."""
    every = [row for row in store.results() if split_kind(row.key.benchmark)[0] == benchmark]
    if not every:
        raise DataError(f"{store.path} holds no results of '{benchmark}'")
    kinds = {split_kind(row.key.benchmark)[1] for row in every}
    own_kind = BASELINE if BASELINE in kinds else min(kinds)
    rows = [row for row in every if split_kind(row.key.benchmark)[1] == own_kind]

    def title_of(row: Result) -> str:
        kind = split_kind(row.key.benchmark)[1]
        return row.key.method if kind == own_kind else f"{kind}: {row.key.method}"

    # Settings of a method may have changed since: the latest finished cell counts.
    latest = {(r.key.domain, title_of(r), r.key.model, r.key.task): r for r in every}
    notes: list[str] = []
    domains: dict[str, Scores] = {}
    cells: dict[tuple[str, str], list[Result]] = {}
    for domain in in_paper_order(sorted({r.key.domain for r in rows})):
        models, tasks = baseline_shape(rows, domain, notes)
        if not models:
            continue
        values: dict[str, Array] = {}
        for method in sorted({title_of(r) for r in every if r.key.domain == domain}):
            shown = [r for r in every if r.key.domain == domain and title_of(r) == method]
            own = models if method == method_of(method) else _of_the_same_seeds(models, rows, shown)
            found = [latest.get((domain, method, m, t)) for m in own for t in tasks]
            present = [row for row in found if row is not None]
            if len(present) < len(found):
                notes.append(f"{method} on {domain}: {len(present)} of {len(found)} cells, left out")
                continue
            values[method] = stacked(present, len(models), len(tasks))
            cells[domain, method] = present
        domains[domain] = Scores(tuple(tasks), values, {"models": models})
    if not domains:
        missing = baseline_of(benchmark)
        raise DataError(
            f"'{benchmark}' has no finished cells of {missing}, which everything is compared with"
        )
    return PairedResults(benchmark, domains, cells, tuple(notes))


def method_of(title: str) -> str:
    """The method of a column."""
    return title.rpartition(": ")[2]


def _of_the_same_seeds(models: Sequence[str], rows: Sequence[Result], shown: Sequence[Result]) -> list[str]:
    """The models of another kind's cells, in the order of the baseline's models, which ``rows`` know.

    A seed that has no model of that kind, or several, has none here, so that its column is left out.
    """
    seeds = {row.key.model: row.key.pretraining_seed for row in rows}
    own: dict[int, set[str]] = {}
    for row in shown:
        own.setdefault(row.key.pretraining_seed, set()).add(row.key.model)
    found = [own.get(seeds[model], set()) for model in models]
    return [next(iter(of_seed)) if len(of_seed) == 1 else "" for of_seed in found]


def baseline_shape(rows: Sequence[Result], domain: str, notes: list[str]) -> tuple[list[str], list[str]]:
    """Models, in the order of their seeds, and the tasks that the baseline has on all of them."""
    baseline = baseline_of(rows[0].key.benchmark)
    own = [r for r in rows if r.key.domain == domain and r.key.method == baseline]
    seeds = {r.key.model: r.key.pretraining_seed for r in own}
    models = sorted(seeds, key=lambda model: (seeds[model], model))
    known = list(tasks_of(rows[0].key.benchmark).get(domain, ()))
    every = sorted({r.key.task for r in own}, key=lambda t: (known.index(t) if t in known else 99, t))
    tasks = [t for t in every if {r.key.model for r in own if r.key.task == t} == set(models)]
    dropped = [t for t in known if t not in tasks]
    if dropped and models:
        notes.append(f"{domain}: no result of {baseline} on every model for {', '.join(dropped)}, left out")
    return (models, tasks) if tasks else ([], [])


def stacked(rows: Sequence[Result], runs: int, tasks: int) -> Array:
    """Returns ``[runs, tasks, episodes]`` of rows in that order."""
    lengths = {len(row.returns) for row in rows}
    if len(lengths) > 1:
        raise DataError(f"cells of one benchmark have {sorted(lengths)} episodes: they cannot be paired")
    return np.stack([row.returns for row in rows]).reshape(runs, tasks, -1)


def stored_settings(configuration: str) -> dict[str, Any]:
    """The settings in the name of a cell, which came out of a file."""
    return parse_json(configuration, f"a stored configuration, {configuration[:80]!r},", DataError, nan=True)


def revision_of(configuration: str) -> int:
    """The revision of a method that a stored configuration names; 1 where it names none."""
    found = stored_settings(configuration).get("revision", 1)
    if not isinstance(found, int):
        raise DataError(f"a stored configuration names the revision {found!r}; expected a whole number")
    return found


def corrections(rows: Iterable[Result]) -> list[str]:
    """One sentence per correction that came after some of these results: they must not pass for new ones."""
    outdated: dict[str, set[str]] = {}
    for row in rows:
        method = find_method(row.key.method)
        if revision_of(row.key.configuration) < method.revision:
            outdated.setdefault(method.correction, set()).add(row.key.method.split()[0])
    return [
        f"Measured before {correction}, and not measured again yet: {', '.join(_in_order(names))}."
        for correction, names in outdated.items()
    ]


def _in_order(names: Iterable[str]) -> list[str]:
    """Names of methods in the order of the registry, those it does not have after them."""
    found = set(names)
    return [*(name for name in METHODS if name in found), *sorted(found - set(METHODS))]


def provenance_facts(rows: Sequence[Result]) -> dict[str, Any]:
    """What a report must say about where its numbers come from."""

    def every(name: str) -> str:
        return "; ".join(sorted({str(row.facts.get(name, "")) for row in rows}))

    trained: dict[str, set[int]] = {}
    for row in rows:
        trained.setdefault(row.key.domain, set()).add(row.key.pretraining_seed)
    seeds = [f"{domain}: {', '.join(map(str, sorted(own)))}" for domain, own in trained.items()]
    versions = {
        ", ".join(f"{name} {version}" for name, version in row.facts.get("versions", {}).items())
        for row in rows
    }
    return {
        "commands": every("command"),
        "commit": every("commit"),
        "hardware": every("hardware"),
        "versions": "; ".join(sorted(versions)),
        "pretraining seeds": "; ".join(sorted(seeds)),
        "evaluation seed": ", ".join(sorted({str(row.key.evaluation_seed) for row in rows})),
        "finished": f"{min(r.finished for r in rows)} … {max(r.finished for r in rows)}",
    }
