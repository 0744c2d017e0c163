"""npz files of plain arrays, from people we do not know: never unpickled, and damaged in many ways."""

import zipfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# What zipfile and NumPy raise on damaged files, and on arrays of objects, which could run code.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    AttributeError,
    EOFError,
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


def read_npz(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file by name; raises one of ``BROKEN`` if it is not whole or not plain."""
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
