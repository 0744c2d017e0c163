"""The tables of a benchmark report, as cells that any renderer can print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zol.adapt import METHODS, method_summary
from zol.adapt.paper_settings import RETURNS
from zol.bench.benchmark import score_of
from zol.bench.results import PairedResults, corrections, method_of
from zol.report import Cells, Interval, bootstrap_all, number
from zol.report.statistics import (
    average,
    difference,
    improvement,
    method_average,
    method_interquartile_mean,
    relative,
)


@dataclass(frozen=True)
class ReportSection:
    """A heading with what belongs under it."""

    title: str
    text: str
    verdict: str = ""  # what came out, in a sentence
    short: Cells | None = None  # what a terminal shows of it
    tables: tuple[tuple[str, str, Cells], ...] = ()  # name of the file, caption, cells
    figures: tuple[tuple[Path, str], ...] = ()  # picture, caption


def file_name(benchmark: str) -> str:
    """A benchmark's name, settings included, as the beginning of file names."""
    return benchmark.replace(" ", "-").replace("=", "")


def signed(interval: Interval, unit: str = "") -> str:
    """A difference with its interval, always with a sign; nothing where it is not defined (a share of 0)."""
    if not all(math.isfinite(x) for x in (interval.value, interval.low, interval.high)):
        return ""
    small = abs(interval.value) < 10 and not unit
    value, low, high = (
        f"{x:+.3f}" if small else f"{x:+.1f}" for x in (interval.value, interval.low, interval.high)
    )
    return f"{value}{unit} [{low}, {high}]"


def comparison(grid: PairedResults, domains: list[str]) -> Cells:
    """One row per method: average return and how it compares with the baseline."""
    header = ["method", "uses", "env. steps", "adapt s", "mean [95 %]"]
    header += [f"Δ {grid.baseline} [95 %]", "Δ % [95 %]", "IQM", "P(better) [95 %]"]
    rows = []
    for method in grid.methods:
        if not all(method in grid.domains[d].values for d in domains):
            continue
        pairs = grid.pairs(method, domains)
        own = bootstrap_all(
            pairs,
            {
                "mean": method_average,
                "iqm": method_interquartile_mean,
                "difference": difference,
                "relative": relative,
                "better": improvement,
            },
        )
        cells = [row for d in domains for row in grid.cells.get((d, method), ())]
        compared = ["", "", number(own["iqm"].value), ""]
        if method != grid.baseline:
            compared = [
                signed(own["difference"]),
                signed(own["relative"], " %"),
                number(own["iqm"].value),
                str(own["better"]),
            ]
        steps = float(np.mean([row.environment_steps for row in cells])) if cells else 0.0
        seconds = float(np.median([row.seconds for row in cells])) if cells else 0.0
        uses = "data" if all(row.offline for row in cells) else "environment"
        uses = "weights" if changes_weights(method) else uses
        rows.append([method, uses, f"{steps:,.0f}", f"{seconds:.1f}", str(own["mean"]), *compared])
    return header, rows


def verdict(grid: PairedResults, methods: Sequence[str]) -> Cells:
    """In short, what some methods earn, one row per domain and method, and how that compares."""
    rows = []
    for domain, scores in grid.domains.items():
        for method in (name for name in grid.methods if name in {grid.baseline, *methods}):
            if method not in scores.values:
                continue
            statistics = {"mean": method_average, "difference": difference}
            own = bootstrap_all(grid.pairs(method, [domain]), statistics, resamples=500)
            compared = "" if method == grid.baseline else signed(own["difference"])
            rows.append([domain, method, str(own["mean"]), compared])
    return ["domain", "method", "mean [95 %]", f"Δ {grid.baseline} [95 %]"], rows


OLD = " * Measured before a correction of the method."
ROUNDING = 1e-6  # share of a return: the same policy in another batch differs by less
ORACLE = ("zol-paper",)  # methods whose settings somebody chose by test returns


def conclusion(grid: PairedResults, methods: Sequence[str] | None = None) -> str:
    """In a sentence, which methods earn more or less than the baseline on all domains, and which neither."""
    wanted = [m for m in grid.methods if m != grid.baseline and (methods is None or m in methods)]
    more: list[str] = []
    less: list[str] = []
    unclear: list[str] = []
    for method in (name for name in wanted if grid.everywhere(name)):
        pairs = {"difference": difference, "mean": method_average}
        both = bootstrap_all(grid.pairs(method), pairs)
        own, rounding = both["difference"], ROUNDING * abs(both["mean"].value)
        named = f"{method}{_remarks(grid, method)}"
        if own.low > rounding or own.high < -rounding:
            (more if own.low > 0 else less).append(f"{named} {signed(own)}")
        else:
            unclear.append(named)
    where = ", ".join(grid.domains)
    if not more + less + unclear:
        return f"Verdict on {where}: no method is complete that compares with {grid.baseline} yet."
    found = {f"more than {grid.baseline}": more, "less": less, "no clear difference": unclear}
    told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in found.items() if names)
    old = OLD if "*" in told else ""
    single = [domain for domain, scores in grid.domains.items() if scores.runs == 1]
    seeds = (
        f" One pretraining seed of {', '.join(single)}: intervals cover start states only." if single else ""
    )
    scores = "success rates" if score_of(grid.benchmark) == "success" else "returns"
    return f"Verdict on {where}, {scores} with 95 % intervals. {_capital(told)}.{seeds}{old}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def changes_weights(method: str) -> bool:
    """Whether a method, named with or without settings, makes or changes networks."""
    base = method_of(method).split()[0]
    return base in METHODS and METHODS[base].uses == "weights"


def _remarks(grid: PairedResults, method: str) -> str:
    """What must be said whenever a method's result is: classes are never mixed in silence."""
    rows = [row for domain in grid.domains for row in grid.cells[domain, method]]
    found = ["acts in the environment"] if not all(row.offline for row in rows) else []
    found += ["changes weights"] if changes_weights(method) else []
    found += ["oracle settings"] if method_of(method).split()[0] in ORACLE else []
    star = "*" if corrections(rows) else ""
    return star + (f" ({', '.join(found)})" if found else "")


def task_table(grid: PairedResults) -> Cells:
    """One row per task, one column per method, plain means; then the averages, beside the paper's own."""
    methods = grid.methods
    published = has_published_returns(grid)
    rows = []
    for domain, scores in grid.domains.items():
        for t, task in enumerate(scores.tasks):
            means = [number(scores.values[m][:, t].mean()) if m in scores.values else "" for m in methods]
            theirs = [number(value) for value in RETURNS.get((domain, task), ())] or ["", ""]
            rows.append([f"{domain} {task}", *means, *(theirs if published else ())])
    averages = [
        number(float(average([scores.values[m] for scores in grid.domains.values()])))
        if grid.everywhere(m)
        else ""
        for m in methods
    ]
    if published:
        every = [[RETURNS[d, task] for task in scores.tasks] for d, scores in grid.domains.items()]
        averages += [number(float(np.mean([np.mean(own, axis=0)[k] for own in every]))) for k in (0, 1)]
    header = ["task", *methods, *(PUBLISHED if published else ())]
    return header, [*rows, ["average over domains", *averages]]


PUBLISHED = ("paper: FB", "paper: ZOL")
OTHERWISE = (
    "The columns 'paper' are what the paper's table has for FB and ZOL: other models (published ExORL data "
    "of RND, networks and trainings many times as large), 100 episodes, settings of ZOL chosen per task."
)


def has_published_returns(grid: PairedResults) -> bool:
    """Whether the paper has a return for every task of the grid."""
    tasks = [(domain, task) for domain, scores in grid.domains.items() for task in scores.tasks]
    return score_of(grid.benchmark) == "return" and all(task in RETURNS for task in tasks)


def seeds_of(grid: PairedResults, domain: str) -> set[int]:
    """Pretraining seeds of a domain's models."""
    return {row.key.pretraining_seed for row in grid.cells[domain, grid.baseline]}


def seed_table(grid: PairedResults) -> Cells:
    """Means over tasks of every pretraining seed: what single models do."""
    rows = []
    for domain, scores in grid.domains.items():
        for run in range(scores.runs):
            seed = grid.cells[domain, grid.baseline][run * len(scores.tasks)].key.pretraining_seed
            means = [number(scores.values[m][run].mean()) if m in scores.values else "" for m in grid.methods]
            rows.append([f"{domain} seed {seed}", *means])
    return ["model", *grid.methods], rows


def coverage(grid: PairedResults) -> str:
    """What the intervals cover, in words."""
    parts = []
    for domain, scores in grid.domains.items():
        runs, tasks, episodes = next(iter(scores.values.values())).shape
        parts.append(f"{domain} {runs} × {tasks} × {episodes}")
    single = [domain for domain, scores in grid.domains.items() if scores.runs == 1]
    text = (
        f"Models × tasks × paired episodes: {'; '.join(parts)}. Intervals are paired bootstraps "
        "that resample models and, within model and task, episodes; tasks are fixed. "
    )
    if alike := [
        domain for domain in grid.domains if len(seeds_of(grid, domain)) < grid.domains[domain].runs
    ]:
        text += (
            f"Several models have the same pretraining seed ({', '.join(alike)}): checkpoints of one run are "
            "no independent samples. "
        )
    if single:
        text += (
            f"With one seed ({', '.join(single)}) they cover start states only, not the variation between "
            "pretraining seeds. "
        )
    text += (
        "An average over domains is the mean of the domains' means, so every domain counts the same however "
        "many seeds it has. P(better) is the share of paired episodes that earn more than the baseline's, "
        "ties half. IQM is the mean of the middle half of all (seed, task) means. Adapt s is the time to "
        "adapt all tasks of a domain. Environment steps are per task, taken before the test."
    )
    return text


def benchmark_section(grid: PairedResults, figures: tuple[tuple[Path, str], ...]) -> ReportSection:
    """Everything about one benchmark."""
    slug = file_name(grid.benchmark)
    domains = list(grid.domains)
    tables = [(f"{slug}-tasks", "Mean return per task", task_table(grid))]
    if len(domains) > 1:
        tables.insert(0, (f"{slug}-overall", "Average over domains", comparison(grid, domains)))
    tables += [(f"{slug}-{domain}", domain, comparison(grid, [domain])) for domain in domains]
    if any(scores.runs > 1 for scores in grid.domains.values()):
        tables.append((f"{slug}-seeds", "Mean over tasks, per model", seed_table(grid)))
    methods = "\n".join(f"- {name}: {method_summary(method_of(name))}" for name in grid.methods)
    left_out = "".join(f"\n- {note}" for note in grid.notes)
    shown = [row for rows in grid.cells.values() for row in rows]
    text = coverage(grid) + "".join(f"\n\n{note}" for note in corrections(shown))
    text += f"\n\n{OTHERWISE}" if has_published_returns(grid) else ""
    text += "\n\n" + methods + (f"\n\nLeft out:{left_out}" if left_out else "")
    header, rows = next(cells for name, _, cells in tables if name != f"{slug}-tasks")
    kept = [0, header.index("mean [95 %]"), header.index(f"Δ {grid.baseline} [95 %]")]
    short = [header[k] for k in kept], [[row[k] for k in kept] for row in rows]
    title, verdict = f"Benchmark: {grid.benchmark}", conclusion(grid)
    return ReportSection(title, text, verdict, short, tuple(tables), figures)
