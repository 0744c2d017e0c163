"""What ``zol bench ratios`` found: tables, a figure, and the numbers that zol quotes beside estimates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from zol.bench.ranking import write_table
from zol.bench.ratios_controls import CONTROLS
from zol.bench.ratios_figure import Places, draw, draw_places
from zol.bench.ratios_intervals import calibration
from zol.bench.ratios_judge import ALL, FEW, POOLS, Judgement, interval
from zol.common.files import write_bytes
from zol.report import Cells, Interval, markdown, print_table

# title of a column → field of a judgement
SHOWN = {
    "overlap": "overlap",
    "ρ global": "spearman_global",
    "ρ near": "spearman_near",
    "regret near": "regret",
    "mean abs. error": "mean_abs_error",
    "bias": "bias",
    "coverage": "coverage",
}
POOL_TITLES = {ALL: "All latents", FEW: "A few latents, all estimators"}
EXPLAINED = """\
Means over pretraining seeds and tasks with 95 % bootstrap intervals that resample both; rewards per step,
discounted as the model discounts. **overlap**: 1 − total variation between estimated and true occupancy
near the prompt. **ρ**: rank correlation with true returns over all latents (global) and over the prompt and
its moves (near). **regret near**: the best of those minus the estimator's choice among them; `data`, which
chooses nothing, has the prompt's. **bias, mean abs. error**: of estimates against true returns.
**coverage**: how often the 95 % interval holds the truth. **CPU s**: per latent, all tasks together.
**models**: how many seeds a row rests on; a learned world is what some models lack for `imagination`. `data`
weighs every state alike; `exact F` knows the true mean of B under each policy, so that it errs only by what
B cannot express; `rollouts` knows half of the true episodes and is judged on the others, so it shows how
far noise lets anything go.

Estimators that train networks for every latent take seconds each, and are asked about the first task only, on
its prompt, four moves of it and the other tasks' prompts. The second table of a world compares all estimators
on these."""

NEAR = """\
## Near a prompt, on its own task

**bounds**: between which 95 % of true minus estimated rewards per step lay, every world weighing the same.
Then, for every world (and how many of its models gave raw numbers), the mean absolute error / the share of
true values within bounds that were made from the other worlds alone.
"""


def domain_table(lines: Sequence[Judgement], *, intervals: bool = True) -> Cells:
    """One row per estimator of the lines of one domain; terminals are too narrow for intervals."""
    rows = []
    for name in dict.fromkeys(line.estimator for line in lines):
        own = [line for line in lines if line.estimator == name]
        found = [interval(own, field) for field in SHOWN.values()]
        seconds = float(np.mean([line.seconds for line in own]))
        cells = ["" if one is None else _cell(one, intervals) for one in found]
        rows.append([name, *cells, f"{seconds:.2g}", str(len({line.model for line in own}))])
    return ["estimator", *SHOWN, "CPU s", "models"], rows


def _cell(one: Interval, bounds: bool) -> str:
    return f"{one.value:.3f}" + (f" [{one.low:.2f}, {one.high:.2f}]" if bounds else "")


def by_domain(lines: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The lines of every domain, in the order in which domains were given."""
    found: dict[str, list[Judgement]] = {}
    for line in lines:
        found.setdefault(line.domain, []).append(line)
    return found


def by_pool(lines: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """The lines of one domain on all latents and on the few, as far as there are any."""
    found = {which: [line for line in lines if line.pool == which] for which in POOLS}
    return {which: those for which, those in found.items() if those}


def near_table(lines: Sequence[Judgement]) -> Cells:
    """How far estimates near prompts were off, and bounds of their errors (zol.bench.ratios_intervals)."""
    found = calibration(lines)
    worlds = list(dict.fromkeys(world for one in found.values() for world in one["mean_abs_error"]))
    rows = []
    for name, one in found.items():
        errors, shares = one["mean_abs_error"], one["held_out"]
        off = [f"{errors[world]:.2f}" if world in errors else "–" for world in worlds]
        held = [f"{shares[world]:.0%}" if world in shares else "–" for world in worlds]
        bounds = f"{one['low']:+.2f} to {one['high']:+.2f}"
        rows.append([name, bounds, *(f"{x} / {y}" for x, y in zip(off, held, strict=True))])
    models = next(iter(found.values()))["models"] if found else {}
    return ["estimator", "bounds", *(f"{world} ({models.get(world, 0)})" for world in worlds)], rows


def accuracies(lines: Sequence[Judgement], told: Mapping[str, object]) -> dict[str, Any]:
    """pool → estimator → world → how well it did there: what zol quotes beside an offline estimate."""
    found: dict[str, dict[str, dict[str, dict[str, float | int | None]]]] = {}
    for domain, whole in by_domain(lines).items():
        for which, those in by_pool(whole).items():
            for name in dict.fromkeys(line.estimator for line in those if line.estimator not in CONTROLS):
                own = [line for line in those if line.estimator == name]
                means = {field: interval(own, field) for field in SHOWN.values()}
                numbers: dict[str, float | int | None] = {
                    field: None if one is None else round(one.value, 4) for field, one in means.items()
                }
                numbers |= {"seeds": len({line.model for line in own})}
                found.setdefault(which, {}).setdefault(name, {})[domain] = numbers
    protocol = {
        "benchmark": "zol bench ratios",
        "scale": "reward per step, discounted as the model discounts",
        **{name: str(value) for name, value in told.items()},
    }
    return {"protocol": protocol, **found, "near": calibration(lines)}


def page(lines: Sequence[Judgement], told: Mapping[str, object]) -> str:
    """All tables in Markdown."""
    parts = ["# Density ratios and offline values against the truth\n", EXPLAINED, ""]
    for domain, those in by_domain(lines).items():
        seeds = sorted({line.seed for line in those})
        tasks = list(dict.fromkeys(line.task for line in those))
        plain, support = interval(those, "plain_regret"), interval(those, "support")
        parts += [f"## {domain}\n", f"Seeds {', '.join(map(str, seeds))}; tasks {', '.join(tasks)}."]
        parts += [f"The prompt's own regret is {plain}."] if plain else []
        parts += [f"The most that weights on the samples can overlap is {support}."] if support else []
        for which, own in by_pool(those).items():
            first = dict.fromkeys(line.task for line in own)
            parts += [f"\n**{POOL_TITLES[which]}: {', '.join(first)}**\n", markdown(domain_table(own))]
    parts += [NEAR, markdown(near_table(lines))]
    parts += ["![Estimators on every world](ratios.png)\n"]
    parts += ["![Where the first prompt goes, and where ratios say it goes](ratios-occupancy.png)\n"]
    parts += ["## Made with\n"]
    parts += [f"- {name}: {value}" for name, value in told.items()]
    return "\n".join(parts) + "\n"


def write_results(
    lines: Sequence[Judgement],
    places: Sequence[Places],
    told: Mapping[str, object],
    out: Path,
    publish: Path | None,
    console: Console,
) -> None:
    """Write everything to ``out``, print the tables, and copy the accuracies to ``publish``."""
    rows = [asdict(line) | {"off_near": " ".join(map(str, line.off_near))} for line in lines]
    write_table(out / "ratios.csv", told, rows)
    write_bytes(out / "ratios.md", page(lines, told).encode())
    quoted = (json.dumps(accuracies(lines, told), indent=1, ensure_ascii=False) + "\n").encode()
    for path in (out / "ratios.json", *([publish] if publish else [])):
        write_bytes(path, quoted)
    panels: dict[str, dict[str, dict[str, Interval | None]]] = {}
    for domain, whole in by_domain(lines).items():
        for which, those in by_pool(whole).items():
            title = f"{domain}, {POOL_TITLES[which].lower()}"
            print_table(console, domain_table(those, intervals=False), title)
            if which == FEW:
                continue  # one task and five latents near a prompt: too few for a picture
            for name in dict.fromkeys(line.estimator for line in those):
                own = [line for line in those if line.estimator == name]
                panels.setdefault(domain, {})[name] = {
                    title: interval(own, field) for title, field in SHOWN.items()
                }
    draw(panels, out / "ratios.png")
    if places:
        draw_places(places, out / "ratios-occupancy.png")
    console.print(f"tables and figure are in {out}", soft_wrap=True)
