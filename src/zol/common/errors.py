"""Errors that users can cause: each says what was given, what was expected and how to fix it."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from zol.common.version import VERSION

WHEEL = f"zol_rl-{VERSION}-py3-none-any.whl"


def install_line(extra: str) -> str:
    """The command that adds an extra: in the clone, or with the wheel that zol was installed from.

    Never by bare name: a stranger's package is called zol on the public index.
    """
    if (Path(__file__).parents[3] / "pyproject.toml").exists():
        return f"pip install -e '.[{extra}]' (in the folder you cloned)"
    return f"pip install '{WHEEL}[{extra}]' (the wheel that you installed)"


class ZolError(Exception):
    """Every error a user can cause. The command line prints its text alone, without a traceback."""


class DataError(ZolError, ValueError):
    """Arrays, files or datasets that are not what they should be."""


class CheckpointError(ZolError, ValueError):
    """A checkpoint that cannot be read, or does not belong to what it is used with."""


class WorldError(ZolError, RuntimeError):
    """A simulator that cannot do what is asked of it."""


class MissingExtra(ZolError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: {install_line(extra)}")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence about a name nobody knows, with the nearest one that exists."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"no {kind} called '{name}'; {hint}known: {', '.join(names)}"
