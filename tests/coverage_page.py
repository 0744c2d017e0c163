"""Turns what coverage.py measured into ``docs/coverage.md`` and a badge; ``make coverage`` calls it.

    python tests/coverage_page.py runs/coverage/coverage.json docs

The badge is a small picture of our own: nothing is fetched, and it says what the page says.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

LOW = 80  # per cent; modules below it are listed
BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="112" height="20" role="img">
<title>coverage: {n} %</title>
<rect width="66" height="20" fill="#555"/><rect x="66" width="46" height="20" fill="{colour}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="33" y="14">coverage</text><text x="89" y="14">{n} %</text></g>
</svg>
"""
PAGE = """# What the tests reach

<!-- written by make coverage: do not edit -->

![coverage](images/coverage.svg)

The tests of `make test` reach **{share:.1f} %** of the lines and branches of `src/zol`
({lines:,} lines, {branches:,} branches).
Lines that only killed processes reach do not count: a process that is killed writes nothing.

| package | lines | reached |
|---|--:|--:|
{packages}

## Modules below {low} %

{modules}

## Modules that no test reaches

{untested}
"""


def share(covered: int, every: int) -> float:
    """Per cent."""
    return 100.0 * covered / every if every else 100.0


def write(measured: dict[str, Any], docs: Path) -> float:
    """The page and the badge; what is reached of everything, in per cent."""
    packages: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])  # lines, reached, possible
    low: list[tuple[float, str]] = []
    untested: list[str] = []
    for path, file in sorted(measured["files"].items()):
        name, found = path.replace("\\", "/").removeprefix("src/"), file["summary"]
        reached = found["covered_lines"] + found["covered_branches"]
        possible = found["num_statements"] + found["num_branches"]
        _, *inner = name.split("/")
        package = packages[f"zol/{inner[0]}" if len(inner) > 1 else "zol"]
        for k, value in enumerate((found["num_statements"], reached, possible)):
            package[k] += value
        if possible and not found["covered_lines"]:
            untested.append(name)
        elif share(reached, possible) < LOW:
            low.append((share(reached, possible), name))
    totals = measured["totals"]
    everything = share(
        totals["covered_lines"] + totals["covered_branches"],
        totals["num_statements"] + totals["num_branches"],
    )
    colour = "#4c1" if everything >= 90 else "#dfb317" if everything >= 75 else "#e05d44"
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "images" / "coverage.svg").write_text(BADGE.format(n=round(everything), colour=colour))
    (docs / "coverage.md").write_text(
        PAGE.format(
            share=everything,
            lines=totals["num_statements"],
            branches=totals["num_branches"],
            packages="\n".join(
                f"| `{name}` | {lines:,} | {share(reached, possible):.0f} % |"
                for name, (lines, reached, possible) in sorted(packages.items())
            ),
            low=LOW,
            modules="\n".join(f"- `{name}`: {value:.0f} %" for value, name in sorted(low)) or "None.",
            untested="\n".join(f"- `{name}`" for name in untested) or "None.",
        ),
        encoding="utf-8",
    )
    return everything


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    reached = write(json.loads(source.read_text()), target)
    print(f"{reached:.1f} % of lines and branches; see {target / 'coverage.md'}")
