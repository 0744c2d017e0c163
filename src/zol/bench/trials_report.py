"""Trials as tables and a figure: scores per seed and task, raw returns, score against CPU minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from zol.bench.store import canonical
from zol.bench.trials import Outcome, mean_return
from zol.common.files import write_bytes
from zol.common.pictures import write_picture
from zol.report import Cells, csv_text, markdown, print_table

MISSING = "–"
LINES = ("-", "--", ":", "-.")  # ten colours each


@dataclass(frozen=True)
class Page:
    """What is said about the outcomes of one benchmark."""

    name: str  # of the files
    title: str
    text: str
    tasks: tuple[str, ...]  # whose mean is the score; none: of all that a trial tests
    tables: tuple[tuple[str, Cells], ...]  # caption and cells
    score: str = "mean return"  # what the figure's axis says


def groups(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of every name, by seed."""
    found: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda one: one.seed):
        found.setdefault(outcome.name, []).append(outcome)
    return found


def final(outcome: Outcome, tasks: Sequence[str]) -> float | None:
    """The score of the last test; None if the training did not get there, or a task was not tested."""
    return None if outcome.failed else mean_return(outcome.tests[-1], tasks)


def mean(values: Sequence[float | None]) -> float | None:
    """The mean, if there is nothing missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def cell(value: float | None, digits: int = 0) -> str:
    """A number of a table."""
    return MISSING if value is None else f"{value:.{digits}f}"


def scores(outcomes: Sequence[Outcome], tasks: Sequence[str], *, ranked: bool = True) -> Cells:
    """A row per name: kind, updates, CPU minutes, mean over tasks (all seeds, each seed), every task."""
    seeds = sorted({outcome.seed for outcome in outcomes})
    tested = list(dict.fromkeys(task for one in outcomes for task in one.tests[-1].returns))
    others = [task for task in tested if task not in tasks]
    header = ["name", "kind", "updates", "CPU min", "mean", *(f"seed {seed}" for seed in seeds)]
    rows: list[tuple[float, list[str]]] = []
    for name, own in groups(outcomes).items():
        by_seed = {outcome.seed: outcome for outcome in own}
        score = mean([final(one, tasks) for one in own])
        each = [_seed(by_seed.get(seed), tasks) for seed in seeds]
        per_task = [cell(mean([final(one, [task]) for one in own])) for task in [*tasks, *others]]
        updates = mean([float(one.steps) for one in own])
        minutes = mean([one.cpu_seconds / 60 for one in own])
        row = [name, own[0].kind, f"{updates:,.0f}", cell(minutes, 1), cell(score), *each, *per_task]
        rows.append((-1e9 if score is None else score, row))
    if ranked:
        rows.sort(key=lambda pair: -pair[0])
    last = _random([one.random for one in outcomes], [*tasks, *others], tasks, len(seeds))
    return [*header, *tasks, *(f"({task})" for task in others)], [*(row for _, row in rows), last]


def _seed(outcome: Outcome | None, tasks: Sequence[str]) -> str:
    if outcome is not None and outcome.failed:
        return "diverged"
    return MISSING if outcome is None else cell(final(outcome, tasks))


def _random(
    random: Sequence[Mapping[str, float]], shown: Sequence[str], tasks: Sequence[str], seeds: int
) -> list[str]:
    """The row of uniformly random actions, which begin in the start states of every trial's tests."""
    each = {task: mean([one[task] for one in random if task in one]) for task in shown}
    score = mean([each[task] for task in tasks])
    return ["random actions", "", "", "", cell(score), *[""] * seeds, *(cell(each[task]) for task in shown)]


def raw(outcomes: Sequence[Outcome]) -> Cells:
    """One row per trial, test and task with the return of every episode, and where it comes from."""
    header = ["name", "kind", "seed", "settings", "steps", "batch_size", "step", "cpu_seconds", "task"]
    header += ["returns", "health", "command", "commit", "hardware", "finished"]
    rows = []
    for one in outcomes:
        last = one.sessions[-1] if one.sessions else {}
        told = [str(last.get(fact, "")) for fact in ("command", "commit", "cpu")]
        trial = [one.name, one.kind, str(one.seed), canonical(one.settings)]
        trial += [str(one.steps), str(one.batch_size)]
        for test in one.tests:
            health = canonical(test.health)
            for task, returns in test.returns.items():
                values = " ".join(repr(value) for value in returns)
                moment = [str(test.step), f"{test.cpu_seconds:.2f}", task, values, health]
                rows.append([*trial, *moment, *told, one.finished])
    return header, rows


def publish(page: Page, outcomes: Sequence[Outcome], out: Path, console: Console) -> None:
    """Print the tables, and write them with raw returns and the curves to ``out``."""
    for caption, cells in page.tables:
        print_table(console, cells, caption)
    write_bytes(out / f"{page.name}.csv", csv_text(raw(outcomes)).encode())
    draw(outcomes, page, out / f"{page.name}.png")
    write_bytes(out / f"{page.name}.md", _page(page, outcomes).encode())
    console.print(f"tables, raw returns and figure are in {out}", soft_wrap=True, highlight=False)


def _page(page: Page, outcomes: Sequence[Outcome]) -> str:
    parts = [f"# {page.title}\n", page.text, ""]
    for caption, cells in page.tables:
        parts += [f"**{caption}**\n", markdown(cells)]
    parts += [f"![{page.score} against CPU minutes]({page.name}.png)\n", "## Where these numbers come from\n"]
    for fact, title in (("command", "commands"), ("commit", "commits"), ("cpu", "hardware")):
        known = {str(session.get(fact)) for one in outcomes for session in one.sessions}
        parts.append(f"- {title}: {'; '.join(f'`{text}`' for text in sorted(known))}")
    conditions = {name: value for one in outcomes for name, value in one.conditions.items()}
    parts.append("- " + ", ".join(f"{name} {value}" for name, value in conditions.items()))
    return "\n".join(parts) + "\n"


def draw(outcomes: Sequence[Outcome], page: Page, path: Path) -> None:
    """Score against CPU minutes of training, one line per name, means over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for k, (name, own) in enumerate(groups(outcomes).items()):
        points = []
        for tests in zip(*(one.tests for one in own), strict=False):  # one that diverged has fewer
            score = mean([mean_return(test, page.tasks or tuple(test.returns)) for test in tests])
            minutes = sum(test.cpu_seconds for test in tests) / len(tests) / 60
            if score is not None:
                points.append((minutes, score))
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, LINES[k // 10 % len(LINES)], color=f"C{k % 10}", marker=".", label=name)
    axes.set(xlabel="CPU minutes of training", ylabel=page.score)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_picture(figure, path, dpi=130, metadata={"Software": None})
