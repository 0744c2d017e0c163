"""Files and folders that appear whole or not at all."""

import errno
import glob
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from zol.common.errors import CheckpointError, DataError
from zol.common.outputs import require_place

# no space, quota used up, file larger than the system lets this process write
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FILLING = ".filling.lock"  # held by the process that fills a new folder


class DiskFull(CheckpointError):
    """There was no room for a file; whatever had its name before is untouched."""


def _unwritten(path: Path, needed: int, error: OSError) -> CheckpointError:
    if error.errno not in FULL:
        return CheckpointError(f"cannot write {path}: {error.strerror}; what was there before is intact")
    free = shutil.disk_usage(path.parent).free
    return DiskFull(
        f"no room for {path} ({error.strerror}): {needed / 1e6:,.3f} MB are needed, "
        f"{free / 1e6:,.3f} MB are free on its disk"
    )


def temporary_name(path: Path) -> Path:
    """A hidden name beside ``path`` that no other process has, will have or can guess.

    A process number would not do: in containers it repeats from run to run.
    """
    return path.with_name(f".{_stem(path)}.{secrets.token_hex(8)}.tmp")


def _stem(path: Path) -> str:
    """A file's name, shortened where a longer one would be more than file systems take."""
    return os.fsencode(path.name)[:200].decode(errors="ignore")


def _leftovers(path: Path) -> Iterator[Path]:
    """What writers of ``path`` left behind under temporary names, or are still writing."""
    yield from path.parent.glob(f".{glob.escape(_stem(path))}.*.tmp")


def write_atomic(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to the disk, then rename: a reader sees old or new, never half."""
    for leftover in _leftovers(path):
        if leftover.is_file() and not leftover.is_symlink():
            with suppress(DataError, OSError), lock(leftover):  # a living writer holds it
                leftover.unlink()
    temporary, file = _held_temporary(path)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if sys.platform != "win32":  # where an open file cannot be renamed
                temporary.replace(path)
        if sys.platform == "win32":
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _held_temporary(path: Path) -> tuple[Path, IO[bytes]]:
    """A new temporary file, held so that nobody takes it for a leftover."""
    while True:
        temporary = temporary_name(path)
        file = temporary.open("xb")
        with suppress(OSError):  # a file system without locks, or a cleaner that came in between
            _hold(file)
        if temporary.exists():
            return temporary, file
        file.close()


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # makes a rename itself survive a power cut; Windows has no such call
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears at ``path`` when the block ends well, and not at all otherwise.

    What killed processes left behind under temporary names is removed first; a folder that a living process
    is filling is locked, and stays.
    """
    require_place(path)
    if path.exists():
        raise DataError(f"{path} already exists: choose another folder, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in _leftovers(path):
        with suppress(DataError, OSError), lock(leftover / FILLING):
            shutil.rmtree(leftover)
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        with lock(temporary / FILLING):
            yield temporary
            (temporary / FILLING).unlink()
            temporary.rename(path)
        _flush_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file of a checkpoint atomically, creating its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise _unwritten(path, len(data), error) from error


def append_line(path: Path, line: str) -> None:
    """Add a line to a text file of a run, whole or not at all as far as the disk allows."""
    try:
        with path.open("ab") as file:
            before = file.tell()
            try:
                file.write(line.encode() + b"\n")
                file.flush()
            except OSError:
                file.truncate(before)
                raise
    except OSError as error:
        raise _unwritten(path, len(line) + 1, error) from error


def flush(path: Path) -> None:
    """Make sure that what was appended to a file survives a power cut."""
    try:
        with path.open("ab") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise _unwritten(path, 0, error) from error


def remove_temporaries(folder: Path) -> None:
    """Remove what killed writers left behind; only for the holder of the folder's lock."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def lock(path: Path) -> IO[bytes]:
    """An exclusive lock file that the system frees when the process dies, however it dies."""
    file = open(path, "ab")  # noqa: SIM115
    try:
        _hold(file)
    except OSError as error:
        file.close()
        raise DataError(
            f"another process is writing to {path.parent}: wait for it, or choose another folder"
        ) from error
    return file


def _hold(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
