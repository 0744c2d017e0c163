"""The bar of every long job: what, how far, how long still, and one number to watch."""

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


class _Note(ProgressColumn):
    """``note="…"`` of a task, if it has one."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("note", "")))


def progress_bar(*, quiet: bool = False) -> Progress:
    """A bar to use as a context manager; ``advance`` and ``update(task, note=...)`` as in rich."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        _Note(),
        disable=quiet,
    )
