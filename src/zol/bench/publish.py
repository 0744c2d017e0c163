"""``zol report``: everything a store knows, as Markdown, LaTeX, CSV and one HTML page.

Raw returns are written beside the tables (``cells.csv``), so that every number can be computed again by
others. The same store gives the same files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from zol.adapt import estimator_of
from zol.bench.ablation import curves, gather_sweeps, sweep_section
from zol.bench.calibration import ESTIMATOR, calibration, calibration_table
from zol.bench.conditions import split_kind
from zol.bench.figures import ablation_curves, improvement_panels, quality_panels
from zol.bench.quality import quality_table, with_many_models
from zol.bench.results import PairedResults, gather, provenance_facts
from zol.bench.sections import ReportSection, benchmark_section, file_name
from zol.bench.store import KEY, Result, Store, canonical
from zol.common.errors import DataError
from zol.common.files import write_bytes
from zol.common.outputs import require_place
from zol.report import Cells, csv_text, latex, markdown
from zol.report.html import page

Format = Literal["md", "latex", "csv", "html"]
SWEEP = "sweep"  # benchmarks whose name begins so are sweeps
TITLE = "Adaptation of behavioural foundation models"


@dataclass(frozen=True)
class Report:
    """What was found, and the files that say so."""

    sections: tuple[ReportSection, ...]
    files: tuple[Path, ...]


def write_report(store: Store, out: Path, formats: Sequence[Format]) -> Report:
    """Write all tables and figures of a store."""
    require_place(out)
    rows = store.results()
    if not rows:
        raise DataError(f"{store.path} holds no results yet: zol bench exorl fills it")
    sections = [_section(store, name, out) for name in _benchmarks(rows)]
    if calibration(rows):
        sections.append(_calibration_section(rows))
    facts = provenance_facts(rows)
    written = [picture for section in sections for picture, _ in section.figures]

    def write(name: str, text: str) -> None:
        write_bytes(out / name, text.encode())
        written.append(out / name)

    if "md" in formats:
        write("report.md", markdown_page(sections, facts))
    if "latex" in formats:
        write("report.tex", latex_page(sections, facts))
    if "html" in formats:
        write("index.html", page("benchmark", title=TITLE, sections=sections, facts=facts))
    if found := calibration(rows):
        write("calibration.json", json.dumps(found, indent=1) + "\n")
    if "csv" in formats:
        write("cells.csv", csv_text(raw_cells(rows)))
        for section in sections:
            for name, _, cells in section.tables:
                write(f"{name}.csv", csv_text(cells))
    return Report(tuple(sections), tuple(written))


def _benchmarks(rows: Sequence[Result]) -> list[str]:
    """Benchmarks first, sweeps after them."""
    names = {split_kind(row.key.benchmark)[0] for row in rows}
    return sorted(names, key=lambda name: (name.startswith(SWEEP), name))


def _section(store: Store, benchmark: str, out: Path) -> ReportSection:
    slug = file_name(benchmark)
    if not benchmark.startswith(SWEEP):
        grid = gather(store, benchmark)
        if len(grid.methods) < 2:
            return benchmark_section(grid, ())
        picture = improvement_panels(grid, out / f"{slug}-improvement.png")
        caption = f"Difference to {grid.baseline} per task, with paired 95 % intervals"
        section = benchmark_section(grid, ((picture, caption),))
        return _with_quality(section, grid, out / f"{slug}-quality.png")
    notes: list[str] = []
    sweeps = gather_sweeps(store.results(benchmark=benchmark), notes)
    if not sweeps:
        return ReportSection(f"Sweep: {benchmark}", "not finished yet\n" + "\n".join(notes))
    section = sweep_section(benchmark, sweeps, notes)
    picture = ablation_curves(curves(sweeps), out / f"{slug}-ablation.png")
    caption = "Each setting's effect, averaged over all others, with paired 95 % intervals"
    return replace(section, figures=((picture, caption),))


def _with_quality(section: ReportSection, grid: PairedResults, picture: Path) -> ReportSection:
    """The section, and gains against the quality of models where a domain has enough of them."""
    domains = with_many_models(grid)
    if not domains:
        return section
    caption = "Gain against what the model earns by itself, weaker and stronger half of the models"
    table = (f"{file_name(grid.benchmark)}-quality", caption, quality_table(grid, domains))
    figure = (
        quality_panels(grid, domains, picture),
        f"Gain of every method against {grid.baseline}'s return",
    )
    return replace(section, tables=(*section.tables, table), figures=(*section.figures, figure))


def _calibration_section(rows: Sequence[Result]) -> ReportSection:
    found = calibration(rows)[ESTIMATOR]
    text = (
        "What the method episodes promised against what it earned, in reward per step (rewards from 0 to 1). "
        f"Within the bounds of a world lie {found['level']:.0%} of its errors. The last columns say how many "
        "did where the bounds came from the other models of that world, or from the other worlds alone."
    )
    table = ("calibration", "Estimates of whole imagined episodes", calibration_table(rows))
    return ReportSection("Calibration of estimates by whole episodes", text, tables=(table,))


def raw_cells(rows: Sequence[Result]) -> Cells:
    """One row per cell with everything the store knows, returns included."""
    header = [*KEY, "offline", "environment_steps", "seconds", "estimate", "estimator", "episodes", "mean"]
    header += ["returns", "diagnostics", "chosen", "command", "commit", "hardware", "versions", "finished"]
    lines = [
        [
            *(str(getattr(row.key, name)) for name in KEY),
            str(int(row.offline)),
            str(row.environment_steps),
            f"{row.seconds:.3f}",
            "" if row.estimate is None else repr(row.estimate),
            "" if row.estimate is None else estimator_of(row.key.method),
            str(len(row.returns)),
            repr(float(row.returns.mean())),
            " ".join(repr(float(value)) for value in row.returns),
            canonical(row.diagnostics),
            canonical(row.chosen),
            *(str(row.facts[name]) for name in ("command", "commit", "hardware")),
            canonical(row.facts["versions"]),
            row.finished,
        ]
        for row in rows
    ]
    return header, sorted(lines)


def markdown_page(sections: Sequence[ReportSection], facts: dict[str, str]) -> str:
    """All tables on one page."""
    parts = [f"# {TITLE}\n", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    for section in sections:
        verdict = [f"**{section.verdict}**\n"] if section.verdict else []
        parts += [f"## {section.title}\n", *verdict, section.text, ""]
        for _, caption, cells in section.tables:
            parts += [f"**{caption}**\n", markdown(cells)]
        parts += [f"![{caption}]({picture.name})\n" for picture, caption in section.figures]
    return "\n".join(parts)


def latex_page(sections: Sequence[ReportSection], facts: dict[str, str]) -> str:
    """All tables, to be included in a paper."""
    parts = [f"% {TITLE}", *(f"% {name}: {value}" for name, value in facts.items()), ""]
    for section in sections:
        comment = "\n\n".join(filter(None, (section.verdict, section.text))).replace("\n", "\n% ")
        parts += [f"% {section.title}", f"% {comment}", ""]
        parts += [latex(cells, caption, f"tab:{name}") for name, caption, cells in section.tables]
    return "\n".join(parts)
