"""Strict, frozen configurations: a typo is an error that names the nearest field."""

from typing import Any, Self

import pydantic

from zol.common.errors import ZolError, unknown_name

SHOWN = 200  # characters of a wrong value: a file may hold a million of them


class ConfigError(ZolError, ValueError):
    """A configuration with an unknown field or a value out of range."""


class Config(pydantic.BaseModel):
    """Base of every configuration: immutable, JSON-serialisable, no unknown fields, no silent casts."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def __init__(self, **values: Any) -> None:
        unknown = set(values) - set(type(self).model_fields)
        if unknown:
            name = min(unknown)
            raise ConfigError(unknown_name(f"field of {type(self).__name__}", name, type(self).model_fields))
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            name, where = type(self).__name__, ".".join(str(part) for part in first["loc"])
            if not where:  # a rule about several fields, in its own words
                raise ConfigError(f"{name}: {first['ctx']['error']}") from error
            shown = repr(first["input"])
            shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"
            raise ConfigError(f"{name}.{where} = {shown}: {first['msg'].lower()}") from error

    def updated(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated like a new one."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})
