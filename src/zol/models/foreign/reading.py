"""Reading files that nobody vouches for: JSON and safetensors with limits, and never a pickle.

A checkpoint from the internet is input like any other. Nothing here executes what it reads, allocates
what a header merely claims, or loops as often as a config asks for.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from zol.common.errors import CheckpointError, unknown_name

JSON_LIMIT = 8 << 20  # bytes; the spaces of the largest published model take a few hundred kB
HEADER_LIMIT = 16 << 20
NUMBER_TYPES = {"F64", "F32", "F16", "BF16", "I64"}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; the non-standard ±Infinity of published files is accepted, NaN is not."""

    def constant(token: str) -> float:
        if token == "NaN":
            raise CheckpointError(f"{path} contains NaN, which no setting of a model can be")
        return float(token.replace("Infinity", "inf"))

    try:
        if path.stat().st_size > JSON_LIMIT:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes; a config has at most {JSON_LIMIT}"
            )
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=constant)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; expected an object {{…}}")
    return value


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


class Weights:
    """The tensors of a safetensors file: shapes first, contents only on request."""

    def __init__(self, path: Path, file: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path, self._file, self.shapes = path, file, shapes

    def read(self, name: str) -> Tensor:
        """One tensor in memory of its own, in float32 (or int64), checked to be finite."""
        tensor: Tensor = self._file.get_tensor(name)
        if not tensor.is_floating_point():
            return tensor.clone()
        tensor = tensor.to(torch.float32, copy=True)
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"tensor '{name}' of {self.path} has NaN or infinite entries")
        return tensor


@contextmanager
def open_weights(path: Path) -> Iterator[Weights]:
    """Open a safetensors file after checking that its header can be true."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            first = stream.read(8)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    header = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
    if not 2 <= header <= min(HEADER_LIMIT, size - 8):
        raise CheckpointError(
            f"{path} is not a safetensors file: its header cannot have {header} bytes of {size}"
        )
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            shapes = {}
            for name in file.keys():  # noqa: SIM118 - not a dict
                part = file.get_slice(name)
                if part.get_dtype() not in NUMBER_TYPES:
                    raise CheckpointError(
                        f"tensor '{name}' of {path} has type {part.get_dtype()}; "
                        f"expected one of {', '.join(sorted(NUMBER_TYPES))}"
                    )
                shapes[name] = tuple(part.get_shape())
            yield Weights(path, file, shapes)
    except (SafetensorError, OSError, OverflowError) as error:
        raise CheckpointError(f"{path} is not a sound safetensors file: {error}") from error
