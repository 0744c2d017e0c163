"""Optional dependencies: imported where they are needed, with one sentence where they are missing."""

from importlib import import_module
from typing import Any

from zol.common.errors import MissingExtra


def require(module: str, extra: str, purpose: str) -> Any:
    """The module, or an error that says what it is needed for and which extra installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        # A module that is there but misses one of its own dependencies names that one.
        raise MissingExtra(missing.name or module, extra, purpose) from missing
