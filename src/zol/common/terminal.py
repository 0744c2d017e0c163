"""What is printed is printed as it stands: a folder called ``[/red]run`` is a name, not markup."""

from typing import Any

from rich.console import Console


def terminal(**options: Any) -> Console:
    """A console without markup and emoji codes, in messages and in tables; ``options`` as in rich."""
    return Console(markup=False, emoji=False, **options)
