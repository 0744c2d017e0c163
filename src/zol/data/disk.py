"""How a dataset lies on disk: one growing binary file per column, and an index that commits episodes.

    walker/
      dataset.json      schema and provenance, replaced atomically
      obs.bin           rows of float32, one after the other; no header, so it only ever grows
      action.bin …      every other column alike
      resets.bin        start states drawn from the world (optional)
      episodes.bin      32 bytes per episode: steps, content digest, checksum of the record

An episode exists once its record is in ``episodes.bin``: columns are flushed first. Whatever lies
behind the last whole record is the tail of an interrupted write, which readers ignore and the next
writer cuts off.
"""

import hashlib
import json
import math
import mmap
import os
import re
import weakref
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zol.common.errors import DataError
from zol.common.files import write_atomic
from zol.common.reading import read_bytes, read_json, regular_file

INDEX_LIMIT = 256 << 20  # bytes; eight million episodes
LARGEST = 1 << 53  # steps of all episodes
WIDEST = 1 << 32  # entries of one dimension of a row
FORMAT = "zol dataset"
VERSION = 1
HEADER = "dataset.json"
INDEX = "episodes.bin"
RESETS = "resets.bin"
RECORD = np.dtype([("steps", "<i8"), ("digest", "u1", 16), ("check", "<u8")])

# Sampling at random soon touches every page of a mapping, and touched pages count as this process's
# memory. Columns up to this size together may do so; rows of the others are read one by one, which
# costs a few milliseconds per thousand and no memory at all.
RESIDENT_BUDGET = 2**30

# Fixed types make equal data equal bytes, wherever they come from.
DTYPES = {"obs": "<f4", "action": "<f4", "terminated": "|b1", "truncated": "|b1", "physics": "<f8"}
DIMENSIONS = {"obs": 1, "action": 1, "terminated": 0, "truncated": 0}  # of one row; every set has these


@dataclass(frozen=True)
class Header:
    """What ``dataset.json`` says."""

    schema: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # column: type and shape of one row
    provenance: Mapping[str, Any] = field(default_factory=dict)
    resets: tuple[int, str] | None = None  # rows, digest

    def write(self, path: Path) -> None:
        """Replace the header of the set at ``path``, in one step."""
        columns = {n: {"dtype": dtype.str, "shape": list(shape)} for n, (dtype, shape) in self.schema.items()}
        resets = None if self.resets is None else {"rows": self.resets[0], "digest": self.resets[1]}
        text = json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "columns": columns,
                "resets": resets,
                "provenance": dict(self.provenance),
            },
            indent=1,
        )
        write_atomic(path / HEADER, text.encode())

    @staticmethod
    def read(path: Path) -> "Header":
        """The header of the set at ``path``."""
        if not (path / HEADER).is_file():
            raise DataError(f"{path} is not a zol dataset: it has no {HEADER}")
        try:
            found = read_json(path / HEADER, DataError)
            if found["format"] != FORMAT or found["version"] != VERSION:
                raise DataError(
                    f"{path / HEADER} has format '{found['format']}' version {found['version']}; "
                    f"this zol reads '{FORMAT}' version {VERSION}: use a zol that wrote it, or import again"
                )
            schema = {column_name(name): _row_type(spec) for name, spec in found["columns"].items()}
            wrong = [name for name, dtype in DTYPES.items() if name in schema and schema[name][0] != dtype]
            wrong += [name for name, dims in DIMENSIONS.items() if len(schema[name][1]) != dims]
            wrong += ["obs"] if 0 in schema["obs"][1] else []  # its length is what bounds that of the others
            if wrong:
                raise ValueError(f"type or shape of '{wrong[0]}'")
            resets = found["resets"]
            return Header(
                schema,
                dict(found["provenance"]),
                None if resets is None else (int(resets["rows"]), str(resets["digest"])),
            )
        except DataError:
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise DataError(f"{path / HEADER} is damaged ({error!r}); restore it from a copy") from error


def _row_type(spec: Mapping[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of one row of a column: numbers only, never objects."""
    dtype, shape = np.dtype(spec["dtype"]), tuple(int(size) for size in spec["shape"])
    if dtype.kind not in "biuf" or any(not 0 <= size <= WIDEST for size in shape) or len(shape) > 8:
        raise ValueError(f"dtype {dtype}, shape {shape}")
    return dtype, shape


def column_name(name: str) -> str:
    """``name`` if it can be a column: column names are file names."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or f"{name}.bin" in (INDEX, RESETS):
        raise DataError(
            f"'{name}' cannot name a column: use letters, digits and '_' (not episodes or resets)"
        )
    return name


def canonical(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """A column in the type it is stored and hashed in."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"column '{name}' has type {values.dtype}; only numbers and booleans can be stored")
    return np.ascontiguousarray(values, dtype=DTYPES.get(name, values.dtype.newbyteorder("<")))


def episode_digest(rows: Mapping[str, NDArray[Any]]) -> bytes:
    """The content hash of one episode, from its rows in every column."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(rows):
        digest.update(canonical(name, rows[name]).data)
    return digest.digest()


def resets_digest(resets: NDArray[np.float32]) -> str:
    """The content hash of the start states."""
    return hashlib.blake2b(np.ascontiguousarray(resets, "<f4").data, digest_size=16).hexdigest()


def record(number: int, steps: int, digest: bytes) -> bytes:
    """The index record of episode ``number``; its checksum covers its place as well."""
    body = steps.to_bytes(8, "little") + digest
    return body + zlib.crc32(body, number).to_bytes(8, "little")


def read_index(path: Path) -> NDArray[Any]:
    """Every committed episode of the set at ``path``; an interrupted last write is left out."""
    content = read_bytes(path / INDEX, INDEX_LIMIT, DataError) if (path / INDEX).exists() else b""
    size = RECORD.itemsize
    whole = len(content) // size
    valid = [
        zlib.crc32(content[i * size : i * size + 24], i)
        == int.from_bytes(content[i * size + 24 : (i + 1) * size], "little")
        for i in range(whole)
    ]
    count = valid.index(False) if False in valid else whole
    if any(valid[count:]):
        raise DataError(f"{path / INDEX} is damaged at episode {count}: restore it from a copy")
    index = np.frombuffer(content, RECORD, count=count)
    if count and not (index["steps"].min() > 0 and index["steps"].sum(dtype=np.float64) < LARGEST):
        raise DataError(f"{path / INDEX} counts episodes of no steps or too many: restore it from a copy")
    return index


def read_resets(path: Path, header: Header) -> NDArray[np.float32] | None:
    """The start states of the set at ``path``, ``[S, D]``, if it has any."""
    if header.resets is None:
        return None
    rows, columns = header.resets[0], math.prod(header.schema["obs"][1])
    if rows < 0:
        raise DataError(
            f"{path / HEADER} is damaged: it promises {rows} start states; restore it from a copy"
        )
    return np.asarray(_mapped(path / RESETS, np.dtype("<f4"), (columns,), rows, exactly=True)[0])


def _incomplete(file: Path, have: int, need: int) -> DataError:
    return DataError(
        f"{file} has {have} bytes, its set promises {need}: the copy is incomplete, copy it again"
    )


def _mapped(
    file: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int, *, exactly: bool = False
) -> tuple[NDArray[Any], mmap.mmap | None]:
    """Rows of a file as a read-only array, and the mapping behind it."""
    need = rows * dtype.itemsize * math.prod(shape)
    have = regular_file(file, DataError) if file.exists() else 0
    if have < need or (exactly and have != need):
        raise _incomplete(file, have, need)
    if need == 0:
        return np.empty((rows, *shape), dtype), None
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), need, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype).reshape(rows, *shape), mapped


class MappedColumns:
    """The columns of a set on disk as read-only arrays, holding little memory."""

    def __init__(self, path: Path, header: Header, rows: int) -> None:
        self.path = path
        self.arrays: dict[str, NDArray[Any]] = {}
        self._maps: list[mmap.mmap] = []
        self._descriptors: dict[str, int] = {}
        sampled = 0
        for name, (dtype, shape) in header.schema.items():
            file = path / f"{name}.bin"
            self.arrays[name], mapped = _mapped(file, dtype, shape, rows)
            self._maps += [] if mapped is None else [mapped]
            sampled += self.arrays[name].nbytes
            if sampled > RESIDENT_BUDGET and hasattr(os, "pread"):
                self._descriptors[name] = os.open(file, os.O_RDONLY)
                weakref.finalize(self, os.close, self._descriptors[name])

    def gather(self, name: str, rows: NDArray[np.int64], count: int) -> NDArray[Any]:
        """A copy of ``count`` rows of a column from each of these on, ``[N, count, ...]``."""
        column = self.arrays[name]
        if name not in self._descriptors:
            return np.asarray(column[rows[:, None] + np.arange(count)])
        descriptor, size = self._descriptors[name], column.strides[0]
        parts = [os.pread(descriptor, count * size, at) for at in (rows * size).tolist()]
        read = np.frombuffer(bytearray().join(parts), column.dtype)
        return read.reshape(len(rows), count, *column.shape[1:])

    def release(self) -> None:
        """Let go of the mapped pages (they stay in the system's cache): for scans of everything."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
