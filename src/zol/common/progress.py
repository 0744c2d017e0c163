"""Progress bars of long jobs, with the time that is left and a note on what to watch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
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


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """The caller's display, or else one of our own, which is silent unless somebody is watching."""
    if progress is not None:
        yield progress
        return
    console = Console()
    with progress_bar(quiet=not (console.is_terminal or console.is_jupyter)) as own:
        yield own


class Ticker:
    """One line of a progress display that may not be there: with no display, every call does nothing."""

    def __init__(
        self, progress: Progress | None, what: str, total: int | None, *, done: int = 0, note: str = ""
    ) -> None:
        self._progress, self._total = progress, total
        self._task = progress.add_task(what, total=total, completed=done, note=note) if progress else None

    def advance(self, count: int = 1, note: str | None = None) -> None:
        """``count`` more are done; a ``note`` replaces the one that is shown."""
        self._update(advance=count, **({} if note is None else {"note": note}))

    def expect(self, more: int) -> None:
        """There are so many more to do than was known."""
        if self._total is not None:
            self._total += more
            self._update(total=self._total)

    def reach(self, done: int, note: str | None = None) -> None:
        """So many are done altogether."""
        self._update(completed=done, **({} if note is None else {"note": note}))

    def finish(self, total: int | None = None) -> None:
        """All of them are done, perhaps sooner than expected; ``total`` corrects how many there were."""
        total = self._total if total is None else total
        self._update(total=total, completed=total)

    def _update(self, **changes: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **changes)
