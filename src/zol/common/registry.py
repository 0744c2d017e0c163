"""Registries: a name stands for ``"module:object"``, which is imported when it is first used.

A new model, method, estimator, world or benchmark is one file and one line in its registry. Other packages
add to a registry without touching zol, through a Python entry point of the registry's group:

    [project.entry-points."zol.methods"]
    my_search = "my_package.search:METHOD"
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from zol.common.errors import MissingExtra, ZolError, unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One line of a registry."""

    where: str
    """``module:object``"""
    summary: str = ""
    """what it is, in one line; ``--help`` and the docs show it without importing anything"""
    extra: str = ""
    """the optional extra that installs what it needs"""


class Registry(Mapping[str, T], Generic[T]):
    """Named things of one kind, ours first, then those of other packages; values are imported on use."""

    def __init__(self, kind: str, group: str, own: Mapping[str, Entry]) -> None:
        """``kind`` is what error messages call an entry, ``group`` the name of the entry-point group."""
        self.kind, self.group, self.own = kind, group, dict(own)
        self._loaded: dict[str, T] = {}
        self._added: dict[str, T] = {}

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            if point.name in self.own or point.name in found:
                raise ZolError(
                    f"{_package(point)} registers the {self.kind} '{point.name}', which is taken already: "
                    "rename it there, or uninstall that package"
                )
            found[point.name] = point
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self._others
        yield from self._added

    def __len__(self) -> int:
        return len(self.own) + len(self._others) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._others or name in self._added

    def __getitem__(self, name: str) -> T:
        """The object of that name; an unknown name is answered with the nearest one that exists."""
        if name in self._added:
            return self._added[name]
        if name not in self._loaded:
            if name not in self:
                raise UnknownName(unknown_name(self.kind, name, self))
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def add(self, name: str, value: T) -> None:
        """Register an object for this process, as a notebook or a test does; packages use entry points."""
        if name in self:
            raise ZolError(f"there is a {self.kind} called '{name}' already: choose another name")
        self._added[name] = value

    def _load(self, name: str) -> T:
        if name in self._others:
            point = self._others[name]
            try:
                return _checked(point.load(), name)
            except Exception as error:
                raise ZolError(
                    f"the {self.kind} '{name}' of {_package(point)} cannot be loaded "
                    f"({type(error).__name__}: {error}): update or uninstall that package"
                ) from error
        entry = self.own[name]
        module, _, attribute = entry.where.partition(":")
        try:
            return _checked(getattr(import_module(module), attribute), name)
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.startswith("zol") or not entry.extra:
                raise
            raise MissingExtra(missing.name, entry.extra, f"the {self.kind} '{name}'") from missing

    def summary(self, name: str) -> str:
        """What an entry is, in one line."""
        if name in self.own:
            return self.own[name].summary
        if name in self._added:
            return "added in this process"
        return f"from the package {_package(self._others[name])}"

    def summaries(self) -> dict[str, str]:
        """Every name with its line, in order."""
        return {name: self.summary(name) for name in self}


class UnknownName(ZolError, KeyError):
    """A name that a registry does not have."""

    def __str__(self) -> str:  # KeyError would show the sentence in quotes
        return str(self.args[0])


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def _checked(value: Any, name: str) -> Any:
    if value is None:
        raise ZolError(f"'{name}' stands for nothing (None)")
    return value
