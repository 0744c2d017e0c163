"""npz files of plain arrays, from people we do not know: never unpickled, and damaged in many ways."""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from zol.common.errors import DataError
from zol.common.reading import regular_file
from zol.data.sources.expansion import Expansion

# What zipfile and NumPy raise on damaged files, and on arrays of objects, which could run code.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def read_npz_file(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file on disk by name."""
    size = regular_file(path, DataError)
    try:
        with path.open("rb") as file:
            return read_npz(file, Expansion(size), size, str(path))
    except DataError:
        raise
    except BROKEN as error:
        raise DataError(
            f"{path} is not a whole npz file of plain arrays (objects are refused: they can run code)"
        ) from error


def read_npz(file: IO[bytes], expansion: Expansion, stored: int, where: str) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file of ``stored`` bytes by name, as far as they may unpack.

    ``DataError`` says what is wrong with an array; one of ``BROKEN`` is raised if the file is not whole.
    """
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            name = member.filename.removesuffix(".npy")
            expansion.add(member.file_size, min(member.compress_size, stored), f"'{name}' in {where}")
            with archive.open(member) as opened:
                arrays[name] = _read_array(opened, member.file_size, f"'{name}' in {where}")
    return arrays


def _read_array(file: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """One array, after comparing what its header claims with the bytes that are there."""
    version = npy.read_magic(file)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read_header is None:
        raise DataError(f"{where} has version {version} of NumPy's format; expected 1.0 or 2.0")
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError(f"{where} holds objects, which can run code when loaded")
    claimed = math.prod(shape) * dtype.itemsize
    if not 0 <= claimed <= size - file.tell():
        raise DataError(f"{where} claims {claimed} bytes and has {max(0, size - file.tell())}: it is damaged")
    values = np.frombuffer(file.read(claimed), dtype)
    file.read()  # to its end, where the checksum is compared
    return values.reshape(shape, order="F" if fortran else "C")
