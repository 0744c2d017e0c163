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
    for name in group:
        where = f"'{name}' in {path}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise DataError(
                f"{where} is a link to data elsewhere; expected the data: copy them into this file"
            )
        item = group[name]
        if not isinstance(item, h5py.Dataset):
            continue
        if item.is_virtual or item.external:
            raise DataError(
                f"{where} takes its bytes from other files, which is refused: copy them into this file"
            )
        if item.shape is None or item.dtype.kind not in "biuf":
            raise DataError(f"{where} has type {item.dtype}; only numbers and booleans can be read")
        claimed = math.prod(item.shape) * item.dtype.itemsize
        expansion.add(claimed, item.id.get_storage_size(), where)
        if item.compression == "gzip":
            _check_chunks(item, where)
        found[str(name)] = item
    return found


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
