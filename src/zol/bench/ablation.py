"""What a sweep says: the marginal effect of each hyperparameter, and what choosing by test returns buys.

*Oracle* rows pick, per model and task, the configuration with the best mean test return. They are no
methods: they have seen the test. Beside them stand the same choice among as many random moves of the same
sizes, and the choice made on one half of the episodes and scored on the other, which keeps what the choice
knows and drops what it was lucky with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zol.adapt.paper_settings import GRID
from zol.bench.conditions import BASELINE
from zol.bench.results import (
    baseline_shape,
    corrections,
    in_paper_order,
    revision_of,
    stacked,
    stored_settings,
)
from zol.bench.sections import ReportSection, file_name, signed
from zol.bench.store import Result
from zol.common.errors import DataError
from zol.report import Array, Cells, Interval, bootstrap_all, number
from zol.report.statistics import difference, method_average, relative

SEARCH, CONTROL = "zol", "perturb"
AS_FAR_AS = "as_far_as"  # in the configuration of a control: the search whose moves it copies in size
LABELS = {SEARCH: "zol", CONTROL: "random moves of zol's sizes"}


@dataclass(frozen=True)
class Sweep:
    """Returns of all configurations on one domain."""

    tasks: tuple[str, ...]
    baseline: Array  # [runs, tasks, episodes]
    configs: Mapping[str, tuple[Mapping[str, float], ...]]  # method → settings of each row of its values
    values: Mapping[str, Array]  # method → [configurations, runs, tasks, episodes]
    corrections: tuple[str, ...] = ()  # what was corrected since they were measured


@dataclass(frozen=True)
class Curve:
    """The marginal effect of a hyperparameter."""

    label: str
    values: tuple[float, ...]
    intervals: tuple[Interval, ...]  # Δ to the baseline


def gather_sweeps(rows: Sequence[Result], notes: list[str]) -> dict[str, Sweep]:
    """Complete sweeps by domain; what is missing is noted."""
    sweeps: dict[str, Sweep] = {}
    for domain in in_paper_order(sorted({row.key.domain for row in rows})):
        models, tasks = baseline_shape(rows, domain, notes)
        cells = {
            (r.key.method, r.key.configuration, r.key.model, r.key.task): r
            for r in rows
            if r.key.domain == domain
        }
        values, configs, shown = {}, {}, list[Result]()
        for method in (SEARCH, CONTROL):
            own = newest(sorted({key[1] for key in cells if key[0] == method}))
            table = []
            for configuration in own:
                found = [cells.get((method, configuration, m, t)) for m in models for t in tasks]
                present = [row for row in found if row is not None]
                if len(present) == len(found) and present:
                    table.append((configuration, stacked(present, len(models), len(tasks))))
                    shown += present
            if len(table) < len(own):
                notes.append(f"{method} on {domain}: {len(table)} of {len(own)} configurations are complete")
            if table:
                values[method] = np.stack([returns for _, returns in table])
                configs[method] = tuple(settings(method, configuration) for configuration, _ in table)
        if SEARCH in values:
            first = [cells[BASELINE, "{}", m, t] for m in models for t in tasks]
            baseline = stacked(first, len(models), len(tasks))
            sweeps[domain] = Sweep(tuple(tasks), baseline, configs, values, tuple(corrections(shown)))
    return sweeps


def newest(configurations: Sequence[str]) -> list[str]:
    """Those of the latest revision of their method: sweeps of before and after a correction do not mix."""
    revisions = {text: revision_of(text) for text in configurations}
    return [text for text in configurations if revisions[text] == max(revisions.values())]


def settings(method: str, configuration: str) -> Mapping[str, float]:
    """The search settings that a cell is about; a control's are those of the search whose size it copies."""
    found = stored_settings(configuration)
    inner = found.get(AS_FAR_AS) if method == CONTROL else found
    if not isinstance(inner, dict):
        raise DataError(f"a stored cell of {method} does not say whose size it copies: {configuration[:80]}")
    return inner


def best_by_test(values: Array) -> Array:
    """Of ``[C, runs, tasks, episodes]``, per run and task the configuration with the best mean return."""
    chosen = values.mean(-1).argmax(0)  # [runs, tasks]
    return np.take_along_axis(values, chosen[None, :, :, None], axis=0)[0]


def chosen_on_other_half(values: Array) -> Array:
    """The same choice made on every second episode and scored on the others, both ways round."""
    result = np.empty(values.shape[1:])
    for half in (0, 1):
        chosen = values[..., 1 - half :: 2].mean(-1).argmax(0)
        mine = np.take_along_axis(values[..., half::2], chosen[None, :, :, None], axis=0)[0]
        result[..., half::2] = mine
    return result


def rows_of_choice(sweep: Sweep) -> dict[str, Array]:
    """What is compared with plain FB: the average configuration, and the best ones by test return."""
    rows: dict[str, Array] = {BASELINE: sweep.baseline}
    for method, values in sweep.values.items():
        count = len(values)
        rows[f"{LABELS[method]}, average of {count}"] = values.mean(0)
        rows[f"oracle: best of {count} {LABELS[method]}, by test return"] = best_by_test(values)
        if values.shape[-1] >= 2:
            rows[f"best of {count} {LABELS[method]} on half the episodes, scored on the rest"] = (
                chosen_on_other_half(values)
            )
    return rows


def choice_table(sweeps: Mapping[str, Sweep]) -> Cells:
    """Average over domains and Δ to plain FB of every kind of choice."""
    per_domain = [rows_of_choice(sweep) for sweep in sweeps.values()]
    names = [name for name in per_domain[0] if all(name in rows for rows in per_domain)]
    statistics = {
        "mean": method_average,
        "difference": difference,
        "relative": relative,
    }
    table = []
    for name in names:
        pairs = [np.stack([rows[name], rows[BASELINE]]) for rows in per_domain]
        own = bootstrap_all(pairs, statistics)
        compared = ["", ""]
        if name != BASELINE:
            compared = [signed(own["difference"]), signed(own["relative"], " %")]
        domain_means = [number(rows[name].mean()) for rows in per_domain]
        table.append([name, number(own["mean"].value), *compared, *domain_means])
    return ["what", "mean", f"Δ {BASELINE} [95 %]", "Δ % [95 %]", *sweeps], table


def oracle_tasks(sweeps: Mapping[str, Sweep]) -> Cells:
    """Per task: plain FB and the oracle rows."""
    rows, header = [], ["task"]
    for domain, sweep in sweeps.items():
        named = rows_of_choice(sweep)
        header = ["task", *named]
        for t, task in enumerate(sweep.tasks):
            rows.append([f"{domain} {task}", *(number(values[:, t].mean()) for values in named.values())])
    return header, rows


def curves(sweeps: Mapping[str, Sweep]) -> dict[str, list[Curve]]:
    """Hyperparameter → Δ to plain FB at each of its values, averaged over domains and all other settings."""
    found: dict[str, list[Curve]] = {}
    for name in GRID:
        values = tuple(sorted({config[name] for s in sweeps.values() for config in s.configs[SEARCH]}))
        if len(values) < 2:
            continue
        for method in (SEARCH, CONTROL):
            if any(s.configs.get(method) != s.configs[SEARCH] for s in sweeps.values()):
                continue  # marginals of different configurations would not compare
            intervals = []
            for value in values:
                pairs = []
                for sweep in sweeps.values():
                    rows = [k for k, config in enumerate(sweep.configs[method]) if config[name] == value]
                    pairs.append(np.stack([sweep.values[method][rows].mean(0), sweep.baseline]))
                intervals.append(bootstrap_all(pairs, {"Δ": difference}, resamples=500)["Δ"])
            found.setdefault(name, []).append(Curve(LABELS[method], values, tuple(intervals)))
    return found


def curve_table(found: Mapping[str, Sequence[Curve]]) -> Cells:
    """The curves as numbers."""
    rows = [
        [f"{name} = {value:g}", line.label, signed(interval)]
        for name, lines in found.items()
        for line in lines
        for value, interval in zip(line.values, line.intervals, strict=True)
    ]
    return ["setting", "of", f"Δ {BASELINE} [95 %]"], rows


def sweep_section(benchmark: str, sweeps: Mapping[str, Sweep], notes: Sequence[str]) -> ReportSection:
    """Everything about a sweep but its figure."""
    slug = file_name(benchmark)
    shapes = "; ".join(
        f"{domain} {'×'.join(map(str, sweep.values[SEARCH].shape))}" for domain, sweep in sweeps.items()
    )
    text = (
        "Oracle rows choose a configuration per model and task by the returns of the very episodes they "
        "report: they show what selection on test returns buys, for the search and for random moves of the "
        "same sizes. They are not results of a method. Configurations × pretraining seeds × tasks × paired "
        f"episodes: {shapes}. Intervals resample seeds and episodes after the choice, so those of oracle "
        "rows are too high and too narrow."
    )
    for note in dict.fromkeys(note for sweep in sweeps.values() for note in sweep.corrections):
        text += f"\n\n{note}"
    left_out = "".join(f"\n- {note}" for note in notes)
    tables = (
        (f"{slug}-choice", "What choosing by test returns buys", choice_table(sweeps)),
        (f"{slug}-oracle-tasks", "The same per task, mean returns", oracle_tasks(sweeps)),
        (f"{slug}-ablation", "Marginal effect of each setting", curve_table(curves(sweeps))),
    )
    text += f"\n\nLeft out:{left_out}" if left_out else ""
    header, rows = tables[0][2]
    verdict = "Against plain FB: " + "; ".join(f"{row[0]} {row[2]}" for row in rows[1:]) + "."
    short = header[:3], [row[:3] for row in rows]
    return ReportSection(f"Sweep: {benchmark}", text, verdict, short, tables)
