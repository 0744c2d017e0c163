"""One object of another project's config, read with types, limits and errors that name the field."""

from collections.abc import Mapping
from typing import Any, NoReturn, Self

from zol.common.errors import CheckpointError, unknown_name


class Section:
    """One object of a config, read with types, limits and errors that name the field."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values, self.where = values, where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def only(self, *known: str) -> Self:
        """The same section, after checking that it has no entries but these.

        An entry that nobody reads would be a part of the model that is silently left out.
        """
        unknown = [name for name in self.values if name not in known]
        if unknown:
            raise CheckpointError(
                f"{self.where}: {unknown_name('setting', str(unknown[0])[:80], known)}. This version of the "
                "format is not supported, because what that setting does would be left out"
            )
        return self

    def section(self, name: str) -> "Section":
        """A nested object, which must be there."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            self._refuse(name, "an object {…}")
        return Section(value, f"{self.where}.{name}")

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number; its range is checked where it is used."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 53:
            self._refuse(name, "a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
            self._refuse(name, "a finite number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """true or false; published files also write 1 and 0."""
        value = self.values.get(name, default)
        if not isinstance(value, bool) and value not in (0, 1):
            self._refuse(name, "true or false")
        return bool(value)

    def choice(self, name: str, default: str | None, known: tuple[str, ...]) -> str:
        """One of a few words."""
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in known:
            self._refuse(name, f"one of {', '.join(known)}")
        return value

    def name(self) -> str:
        """The ``name`` tag, or nothing."""
        value = self.values.get("name", "")
        return value if isinstance(value, str) else self._refuse("name", "a word")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        shown = repr(self.values[name])[:80] if name in self.values else "missing"
        raise CheckpointError(f"{self.where}.{name} is {shown}; expected {expected}")
