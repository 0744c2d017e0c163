"""HDF5 files from people we do not know: numbers that lie in the file itself, and no more than it can hold.

HDF5 can store a dataset's bytes in any other file (external and virtual storage, links), which would copy a
file of this machine into a dataset that its owner gives away. All of that is refused.
"""

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zol.common.errors import DataError
from zol.common.extras import require
from zol.common.reading import regular_file
from zol.data.sources.expansion import SMALL, Expansion

BROKEN = (AttributeError, KeyError, MemoryError, OSError, OverflowError, RuntimeError, TypeError, ValueError)
DEFLATE = 1032  # no byte of zlib's format unpacks to more
DEPTH = 1000  # letters of a group's path


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """The file as h5py opens it; whatever is found damaged inside the block is one sentence."""
    h5py = require("h5py", "hdf5", f"reading {path.name}")
    regular_file(path, DataError)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except DataError:
        raise
    except BROKEN as error:
        first = str(error).splitlines()[:1]
        raise DataError(
            f"{path} is not a whole HDF5 file of arrays ({''.join(first)[:200]}): copy or download it again"
        ) from error


def datasets(group: Any, path: Path) -> dict[str, Any]:
    """The datasets of a file or group by name, none of them read yet, all of them safe to read."""
    import h5py

    expansion, found = Expansion(regular_file(path, DataError)), {}
    for name, item, where in _items(group, path):
        if not isinstance(item, h5py.Dataset):
            continue
        if item.shape is None or item.dtype.kind not in "biuf":
            raise DataError(f"{where} has type {item.dtype}; only numbers and booleans can be read")
        _check_size(item, expansion, where)
        found[name] = item
    return found


def require_own_data(path: Path) -> list[str]:
    """Check a whole file, groups within groups, before other people's code reads it; the names at its top.

    Datasets of words pass, too: whoever reads them knows what they are.
    """
    import h5py

    with open_hdf5(path) as file:
        expansion, waiting, seen = Expansion(regular_file(path, DataError)), [file], set()
        while waiting:
            group = waiting.pop()
            for _, item, where in _items(group, path):
                if isinstance(item, h5py.Dataset):
                    if item.shape is not None:
                        _check_size(item, expansion, where)
                    continue
                address = h5py.h5o.get_info(item.id).addr
                if address in seen or len(item.name) > DEPTH:
                    raise DataError(f"{where} is a group within itself, or too deep: nothing was read")
                seen.add(address)
                if isinstance(item, h5py.Group):
                    waiting.append(item)
        return [str(name) for name in file]


def _items(group: Any, path: Path) -> Iterator[tuple[str, Any, str]]:
    """Name, item and description of everything in a group; an item whose data are elsewhere is refused."""
    import h5py

    for name in group:
        where = f"'{name}' in {path}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise DataError(
                f"{where} is a link to data elsewhere; expected the data: copy them into this file"
            )
        item = group[name]
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            raise DataError(
                f"{where} takes its bytes from other files, which is refused: copy them into this file"
            )
        yield str(name), item, where


def _check_size(item: Any, expansion: Expansion, where: str) -> None:
    claimed = math.prod(item.shape) * item.dtype.itemsize
    expansion.add(claimed, item.id.get_storage_size(), where)
    if item.compression == "gzip":
        _check_chunks(item, where)


def _check_chunks(item: Any, where: str) -> None:
    """HDF5 unpacks a chunk whole, however large it turns out; so it is tried in a bounded space before."""
    whole = math.prod(item.chunks) * item.dtype.itemsize
    suspects: list[Any] = []
    item.id.chunk_iter(lambda chunk: suspects.append(chunk) if chunk.size * DEFLATE > SMALL else None)
    for chunk in suspects:
        _, packed = item.id.read_direct_chunk(chunk.chunk_offset)
        if chunk.filter_mask == 0 and len(zlib.decompressobj().decompress(packed, whole + 1)) > whole:
            raise DataError(
                f"{where} has a chunk that unpacks to more than its {whole} bytes: it was not read"
            )
