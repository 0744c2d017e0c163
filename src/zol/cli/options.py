"""The options of a command, read off its signature: what files of options, completions and records need.

Commands are called with ``tyro.conf.OmitArgPrefixes``, so the fields of a configuration are options like any
other: ``--steps``, not ``--training.steps``.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import pydantic
import tyro

from zol.common.errors import ZolError

OMIT = (tyro.conf.OmitArgPrefixes,)
TEXTS = (str, str | None, tuple[str, ...])
SAID = {"by": "ESTIMATOR", "from": "CHECKPOINT", "ray": "ADDRESS"}  # where the option's name says too little


@dataclass(frozen=True)
class Option:
    """One thing that can be said to a command."""

    name: str  # as it is typed, without the dashes
    default: Any = inspect.Parameter.empty
    positional: bool = False

    @property
    def flag(self) -> bool:
        """Whether it is switched on and off, ``--name`` and ``--no-name``, instead of being given a value."""
        return isinstance(self.default, bool)


def options(command: Callable[..., Any]) -> dict[str, Option]:
    """Every option of a command by its name."""
    found = {}
    for name, parameter in inspect.signature(command).parameters.items():
        positional = tyro.conf.Positional in getattr(parameter.annotation, "__metadata__", ())
        for inner, default in flat({_typed(name, parameter): parameter.default}):
            found[inner] = Option(inner, default, positional)
    return found


def values(command: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What a command is called with, by option."""
    signature = inspect.signature(command)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(flat({_typed(name, signature.parameters[name]): v for name, v in bound.arguments.items()}))


def _typed(name: str, parameter: inspect.Parameter) -> str:
    """What a parameter is called on the command line: ``--from`` cannot be the name of one in Python."""
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return next((said for m in metadata if (said := getattr(m, "name", None))), name)


def flat(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, those of a configuration's fields in its place; names as they are typed."""
    for name, value in named.items():
        if isinstance(value, pydantic.BaseModel):
            yield from flat({inner: getattr(value, inner) for inner in type(value).model_fields})
        elif is_dataclass(value) and not isinstance(value, type):
            yield from flat({field.name: getattr(value, field.name) for field in fields(value)})
        else:
            yield name.replace("_", "-"), value


def number(option: str, text: str) -> float:
    """A number that was typed behind an option."""
    try:
        return float(text)
    except ValueError:
        raise ZolError(f"--{option} {text} is not a number") from None


def with_placeholders(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, whose help says ``--world WORLD`` where tyro would say ``--world STR``."""

    @functools.wraps(command)
    def same(*args: Any, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    del same.__wrapped__  # which tyro would read instead
    signature = inspect.signature(command)
    parameters = [
        parameter.replace(annotation=_annotated(parameter)) for parameter in signature.parameters.values()
    ]
    same.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    same.__annotations__ = command.__annotations__ | {one.name: one.annotation for one in parameters}
    return same


def _annotated(parameter: inspect.Parameter) -> Any:
    """A parameter's type with what stands for its value, if it is a text and nobody has said that."""
    metadata = getattr(parameter.annotation, "__metadata__", ())
    kind = parameter.annotation.__origin__ if metadata else parameter.annotation
    if kind not in TEXTS or any(getattr(one, "metavar", None) for one in metadata):
        return parameter.annotation
    name = _typed(parameter.name, parameter)
    word = SAID.get(name, name.replace("_", "-").upper())
    if kind == tuple[str, ...]:
        word = f"[{word.removesuffix('S')} ...]"
    return Annotated[kind, *metadata, tyro.conf.arg(metavar=word)]
