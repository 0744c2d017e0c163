"""The bar of every long job: what, how far, how long still, and what to watch."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from zol.common.terminal import terminal


class _Note(ProgressColumn):
    """``note="…"`` of a task, if it has one."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("note", "")))


def progress_bar(*, quiet: bool = False) -> Progress:
    """A bar to use as a context manager; ``advance`` and ``update(task, note=...)`` as in rich."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        _Note(),
        console=terminal(),
        disable=quiet,
    )


class Ticker:
    """One line of a progress display that may not be there: with no display, every call does nothing."""

    def __init__(
        self, progress: Progress | None, what: str, total: int, *, done: int = 0, note: str = ""
    ) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total, completed=done, note=note) if progress else None

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """``count`` more are done; a ``note`` replaces the one that is shown."""
        self._update(advance=count, **({} if note is None else {"note": note}))

    def reach(self, done: int, note: str | None = None) -> None:
        """So many are done altogether."""
        self._update(completed=done, **({} if note is None else {"note": note}))

    def _update(self, **changes: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **changes)


class Clock:
    """Steps per second since the last restart."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, step: int) -> None:
        """Count from here: time that was spent on something else does not count."""
        self._step, self._since = step, time.perf_counter()

    def speed(self, step: int) -> float:
        """Steps per second."""
        return (step - self._step) / max(time.perf_counter() - self._since, 1e-9)


def summary(history: Sequence[Mapping[str, float]], metrics: Mapping[str, str]) -> str:
    """Beside the bar of a training run: speed, its two most telling metrics, the last mean return.

    ``metrics`` are those worth watching, title → name, the most telling ones first.
    """
    now = history[-1]
    shown = [f"{now['steps_per_second']:.3g} steps/s"] if "steps_per_second" in now else []
    shown += [f"{title} {now[name]:.3g}" for title, name in list(metrics.items())[:2] if name in now]
    returns = [line["return/mean"] for line in history if "return/mean" in line]
    return " ".join([*shown, *(f"return {r:.3g}" for r in returns[-1:])])


def told(line: Mapping[str, float]) -> str:
    """A test in one line, which stays above the bar, and in the log of a job without a terminal."""
    if "return/mean" not in line:
        return f"step {line['step']:,}: tested"
    random = f", random actions {line['random/mean']:.4g}" if "random/mean" in line else ""
    return f"step {line['step']:,}: mean return {line['return/mean']:.4g}{random}"
