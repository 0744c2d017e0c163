"""Tensors in files: safetensors, never pickle; shapes are known before anything is read.

A header is not believed before it is compared with the file's true length, and no tensor enters that has
NaN or infinite entries, whoever wrote it.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from zol.common.errors import CheckpointError, DataError
from zol.common.files import write_bytes
from zol.common.reading import regular_file

HEADER_LIMIT = 16 << 20
NUMBER_TYPES = {"F64", "F32", "F16", "BF16", "I64", "U8", "BOOL"}
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin", ".joblib")


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file atomically."""
    # safetensors refuses tensors that share memory, such as start states sliced from the sample.
    owned: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        whole = tensor.detach().cpu().contiguous()
        memory = whole.untyped_storage().data_ptr()
        owned[name] = whole.clone() if memory in taken else whole
        taken.add(memory)
    write_bytes(path, safetensors.torch.save(owned, dict(metadata or {})))


def refuse_pickles(path: Path) -> None:
    """Stop at a file that can run any code when it is opened."""
    if path.suffix in PICKLES:
        raise CheckpointError(
            f"{path} is a pickle, which can run code when loaded: zol reads safetensors only. "
            "Give a folder that holds config.json and model.safetensors"
        )


class TensorFile:
    """The tensors of a safetensors file: shapes first, contents only on request."""

    def __init__(self, path: Path, file: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path, self._file, self.shapes = path, file, shapes

    @property
    def metadata(self) -> dict[str, str]:
        """The string facts in its header."""
        return dict(self._file.metadata() or {})

    def require(self, expected: Mapping[str, tuple[int, ...]], dropped: tuple[str, ...] = ()) -> None:
        """Every expected tensor is there in its shape, and nothing else is, but for dropped prefixes."""
        given = (
            {n: s for n, s in self.shapes.items() if not n.startswith(dropped)} if dropped else self.shapes
        )
        compare_shapes(expected, given, self.path)

    def read(self, name: str, dtype: torch.dtype | None = None, *, own: bool = True) -> Tensor:
        """One tensor, checked to be finite; in memory of its ``own``, or mapped from the file.

        With a ``dtype`` it is converted, between the precisions of one kind of number only. Samples stay
        mapped: sums over them round differently at other addresses, and results must not change.
        """
        stored: Tensor = self._file.get_tensor(name)
        tensor = converted(stored, stored.dtype if dtype is None else dtype, name, self.path)
        if own and tensor is stored:
            tensor = stored.clone()
        check_finite(tensor, f"tensor '{name}' of {self.path}")
        return tensor


def require_tensor(value: object, what: str, instead: str) -> None:
    """Refuse what a network cannot compute with, and say what its user may have meant."""
    if not isinstance(value, Tensor):
        raise DataError(f"a model takes {what} as torch tensors, got {type(value).__name__}: {instead}")


def check_finite(tensor: Tensor, what: str) -> None:
    """Refuse NaN and infinity, which nothing after this would notice."""
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise CheckpointError(
            f"{what} has NaN or infinite entries: it is damaged, or what wrote it had diverged"
        )


@contextmanager
def open_tensors(path: Path, limit: int | None = None) -> Iterator[TensorFile]:
    """Open a safetensors file after checking that its header can be true.

    ``limit`` is the largest number of bytes it may have, for files whose shapes nothing else tells.
    """
    refuse_pickles(path)
    size = regular_file(path)
    if limit is not None and size > limit:
        raise CheckpointError(f"{path} has {size} bytes; a file of this kind has at most {limit}")
    try:
        with path.open("rb") as stream:
            first = stream.read(8)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    header = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
    if not 2 <= header <= min(HEADER_LIMIT, size - 8):
        raise CheckpointError(
            f"{path} is not a whole safetensors file (truncated download?): its header cannot have {header} "
            f"bytes of {size}"
        )
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield TensorFile(path, file, _shapes(path, file))
    except (SafetensorError, OSError, OverflowError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file (truncated download?): {error}"
        ) from error


def _shapes(path: Path, file: Any) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for name in file.keys():  # noqa: SIM118 - not a dict
        part = file.get_slice(name)
        if part.get_dtype() not in NUMBER_TYPES:
            raise CheckpointError(
                f"tensor '{name}' of {path} has type {part.get_dtype()}; "
                f"expected one of {', '.join(sorted(NUMBER_TYPES))}"
            )
        shapes[name] = tuple(part.get_shape())
    return shapes


def read_tensors(path: Path, limit: int | None = None) -> dict[str, Tensor]:
    """All tensors of a safetensors file; anything else, or a truncated one, is refused."""
    with open_tensors(path, limit) as file:
        return {name: file.read(name) for name in file.shapes}


def read_metadata(path: Path, needed: Collection[str] = ()) -> dict[str, str]:
    """The string facts in a safetensors header, without reading its tensors."""
    with open_tensors(path) as file:
        found = file.metadata
    for name in needed:
        if name not in found:
            raise CheckpointError(f"{path} lacks '{name}' in its header: it was not written by zol")
    return found


def counted(header: Mapping[str, str], name: str, source: Path) -> int:
    """A whole number in a header, such as how many steps a state has behind it."""
    text = header[name]
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise CheckpointError(f"'{name}' in the header of {source} is '{text[:80]}'; expected a whole number")
    return int(text)


def compare_shapes(
    expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]], source: Path | str
) -> None:
    """Stop unless a file has exactly the tensors that its config describes; three others are named."""
    complaints = [
        f"'{name}' is missing (expected shape {list(shape)})"
        if name not in given
        else f"'{name}' has shape {list(given[name])}, the config says {list(shape)}"
        for name, shape in expected.items()
        if given.get(name) != shape
    ]
    complaints += [
        f"'{name}' {list(given[name])} is not part of this model" for name in given if name not in expected
    ]
    if complaints:
        more = f" (and {len(complaints) - 3} more)" if len(complaints) > 3 else ""
        raise CheckpointError(
            f"{source} does not fit its config: {'; '.join(complaints[:3])}{more}. "
            "Are both from the same checkpoint, and complete?"
        )


def shapes_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """What :func:`compare_shapes` expects of a module's file."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def assign(module: nn.Module, tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Load tensors into a module; a missing, extra, misshapen or mistyped one is named."""
    own = module.state_dict()
    compare_shapes(shapes_of(module), {n: tuple(t.shape) for n, t in tensors.items()}, source)
    ready = {name: converted(tensor, own[name].dtype, name, source) for name, tensor in tensors.items()}
    # What is not in memory yet takes the file's tensors over.
    module.load_state_dict(ready, assign=any(tensor.is_meta for tensor in own.values()))


def converted(tensor: Tensor, dtype: torch.dtype, name: str, source: Path | str) -> Tensor:
    """The tensor in another precision of its kind of number; any other conversion would hide a mistake."""
    if tensor.dtype != dtype and not (tensor.is_floating_point() and dtype.is_floating_point):
        raise CheckpointError(f"tensor '{name}' of {source} has type {tensor.dtype}; expected {dtype}")
    return tensor.to(dtype)
