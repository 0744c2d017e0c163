"""Reading files that nobody vouches for: regular files only, and JSON with limits.

Whatever is read may come from a stranger. Nothing here executes what it reads, waits for a pipe, follows a
link to an endless device, or allocates what a file merely claims. Tensors have a file of their own,
:mod:`zol.common.tensors`.
"""

import json
import stat
from pathlib import Path
from typing import Any

from zol.common.errors import CheckpointError, DataError

Refusal = type[CheckpointError] | type[DataError]

JSON_LIMIT = 8 << 20  # bytes; the spaces of the largest published model take a few hundred kB
JSON_DEPTH = 64  # brackets inside brackets; everything that walks the result may recurse
DIGITS = 20  # of a whole number: 64 bits, with a sign
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def regular_file(path: Path, error: Refusal = CheckpointError) -> int:
    """The size of a file in bytes, after checking, without opening it, that it is one and ends somewhere.

    Links to regular files are fine; reading a pipe would wait for ever, and a device may never end.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise error(f"{path} does not exist") from None
    except (OSError, ValueError) as problem:
        raise error(f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}") from problem
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise error(f"{path} is {kind}; expected a regular file: copy the file itself to this place")
    return found.st_size


def read_bytes(path: Path, limit: int, error: Refusal = CheckpointError) -> bytes:
    """The content of a regular file of at most ``limit`` bytes."""
    size = regular_file(path, error)
    if size > limit:
        raise error(f"{path} has {size} bytes; a file of this kind has at most {limit}")
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from problem


def read_json(path: Path, error: Refusal = CheckpointError) -> dict[str, Any]:
    """The JSON object in a file; see :func:`parse_json` for its limits."""
    return parse_json(read_bytes(path, JSON_LIMIT, error), str(path), error)


def parse_json(
    data: bytes | str, where: str, error: Refusal = CheckpointError, *, nan: bool = False
) -> dict[str, Any]:
    """A JSON object; the non-standard ±Infinity of published files is accepted, NaN only if asked for.

    Whole numbers beyond 64 bits and brackets nested more than ``JSON_DEPTH`` deep are refused. ``nan`` is for
    notes about numbers, such as the metrics of a run, which may say that a number could not be told.
    """

    def constant(token: str) -> float:
        if token == "NaN" and not nan:
            raise error(f"{where} contains NaN, where only numbers and words can be")
        return float(token.replace("Infinity", "inf"))

    def whole(token: str) -> int:
        if len(token) > DIGITS:
            raise error(f"{where} contains a number of {len(token)} digits; expected at most {DIGITS}")
        return int(token)

    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=constant, parse_int=whole)
    except error:
        raise
    except RecursionError:
        raise _too_deep(where, error) from None
    except ValueError as problem:
        raise error(f"{where} is not valid JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise error(f"{where} holds a {type(value).__name__}; expected an object {{…}}")
    level: list[Any] = [value]
    for _ in range(JSON_DEPTH):
        level = [
            item
            for owner in level
            for item in (owner.values() if isinstance(owner, dict) else owner)
            if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise _too_deep(where, error)


def _too_deep(where: str, error: Refusal) -> CheckpointError | DataError:
    return error(f"{where} is not valid JSON for zol: brackets are nested more than {JSON_DEPTH} deep")
