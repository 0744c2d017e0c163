"""Places to write to, asked for before any time is spent, instead of after."""

import errno
import os
import tempfile
from pathlib import Path

from zol.common.errors import DataError

LONGEST = 255  # bytes in a name, on nearly every file system


# Signs that some file system refuses, and how they are read aloud.
SPOKEN: dict[str, str | int | None] = {
    "<": " lt ",
    ">": " gt ",
    "*": " x ",
    "/": " over ",
    "\\": "",
    ":": "",
    "|": "",
    "?": "",
    '"': "",
}


def file_stem(name: str) -> str:
    """A task's name as that of a file: a typed reward has signs in it that a file's name may not have."""
    return " ".join(name.translate(str.maketrans(SPOKEN)).split()) if SPOKEN.keys() & set(name) else name


def require_place(path: str | Path, option: str = "--out", *, folder: bool = True) -> Path:
    """Stop if no folder (or no file) can be written at ``path``; nothing is created or left behind.

    What is there already may stay there: a file where a folder is to be is refused, and the other way round.
    """
    place = Path(path)
    try:
        _try(place, folder)
    except OSError as error:
        kind = "folder" if folder else "file"
        raise DataError(
            f"{option} {place} cannot be written: {error.strerror or error}. Choose another {kind}; no work "
            "was done yet"
        ) from error
    return place


def _try(place: Path, folder: bool) -> None:
    if any(len(os.fsencode(name)) > LONGEST for name in place.parts):
        raise OSError(errno.ENAMETOOLONG, f"a name in it has more than {LONGEST} characters")
    if not folder and place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder, a file was expected")
    nearest = place if folder else place.parent
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is a file, a folder was expected")
    if not folder and place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be changed")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise OSError(error.errno, f"{nearest} takes no files ({(error.strerror or '').lower()})") from error
