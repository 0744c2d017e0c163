"""The SQLite file below a result store: whose it is, whether it is whole, and what its errors mean.

A file that somebody else made is refused before anything is written to it. Ours carry an application id;
those of before there was one are known by their table, and get the id when results are added.
"""

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from zol.common.errors import DataError

APPLICATION = 0x7A6F6C73  # "zols", in bytes 68–71 of the file
MAGIC = b"SQLite format 3\x00"
HEADER = 100  # bytes
WAIT = 60.0  # seconds for another process to finish writing


@contextmanager
def connected(path: Path, doing: str) -> Iterator[sqlite3.Connection]:
    """One transaction; whatever SQLite refuses becomes a sentence that says what is safe."""
    try:
        # A connection per call: none is ever carried into another process or thread.
        with closing(sqlite3.connect(path, timeout=WAIT)) as database, database:
            yield database
    except (sqlite3.Error, OSError, UnicodeError, OverflowError) as error:
        raise DataError(sentence(path, doing, error)) from error


def keep_log(database: sqlite3.Connection) -> None:
    """Write ahead into a log, so that readers go on while one process writes.

    Only one connection may make the change, and SQLite refuses the others at once instead of waiting for it,
    since two of them could wait for each other: so the waiting is ours.
    """
    end = time.monotonic() + WAIT
    while True:
        try:
            database.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
            time.sleep(0.02)


def sentence(path: Path, doing: str, error: Exception) -> str:
    """What an error of SQLite means for whoever uses the store."""
    text = " ".join(str(error).split())[:200]
    if "locked" in text or "busy" in text:
        return (
            f"another process kept {path} locked for {WAIT:g} s while {doing}; the results in it are safe: "
            "run the same command again when it is done"
        )
    if "full" in text or "disk I/O" in text:
        return (
            f"no room while {doing} {path} ({text}); the results stored before are safe: make room, then the "
            "same command goes on where it stopped"
        )
    if "readonly" in text or "unable to open" in text:
        return f"{path} does not allow {doing} ({text}); nothing was changed: check its folder's rights"
    return (
        f"{path} is damaged: {doing} failed with '{text}'. It was not changed: restore it from a copy, or "
        "fill another store with the same command"
    )


def require_own(path: Path, columns: Collection[str]) -> bool:
    """Stop at a file that is not a result store, without writing to it; whether there is a store at all.

    ``columns`` are those of our table, which tells a store without an application id from others.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for ever
            raise DataError(f"{path} is not a result store that can be opened: it is no regular file")
        with path.open("rb") as file:
            header = file.read(HEADER)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(
            f"{path} is not a result store that can be opened: {(error.strerror or str(error)).lower()}"
        ) from error
    if not header:
        return False
    if len(header) < HEADER or not header.startswith(MAGIC):
        raise DataError(f"{path} is not a result store: it is no SQLite file. It was left as it is")
    owner = int.from_bytes(header[68:72], "big")
    if owner == APPLICATION:
        return True
    found = _columns_in_file(path) if owner == 0 else None
    if found is None or (found and found != set(columns)):
        raise stranger(path)
    return bool(found)


def stranger(path: Path) -> DataError:
    """The error about somebody else's file."""
    return DataError(
        f"{path} is a SQLite file of another program, not a result store. It was left as it is: choose "
        "another file for --store"
    )


def _columns_in_file(path: Path) -> set[str] | None:
    """Those of the table of results, read without locks and the log that an ordinary reader would create."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as database:
            return table_columns(database)
    except (sqlite3.Error, UnicodeError) as error:
        raise DataError(sentence(path, "opening", error)) from error


def table_columns(database: sqlite3.Connection) -> set[str] | None:
    """The columns of the table of results; none in an empty file, None where only others' tables are."""
    tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    if tables and "results" not in tables:
        return None
    return {row[1] for row in database.execute("pragma table_info(results)")}


def require_definition(database: sqlite3.Connection, path: Path, create: str) -> None:
    """Stop at a file that is signed as ours and defines anything but the table that ``create`` makes.

    A view or a computed column of that name would run queries of a stranger, which may never end, and a
    trigger would change what is stored.
    """
    for kind, name, definition in database.execute("select type, name, sql from sqlite_master"):
        own = kind == "table" and _words(str(definition)) == _words(create)
        made_by_sqlite = kind == "index" and definition is None  # of the unique names of cells
        statistics = kind == "table" and str(name).startswith("sqlite_stat")  # after "analyze"
        if not (own or made_by_sqlite or statistics):
            raise DataError(
                f"{path} is damaged: it defines '{' '.join(str(name).split())[:80]}' otherwise than a result "
                "store does. It was not changed: restore it from a copy, or fill another store with the same "
                "command"
            )


def _words(definition: str) -> list[str]:
    return definition.lower().replace("create table if not exists", "create table", 1).split()


def require_whole(database: sqlite3.Connection, path: Path) -> None:
    """Stop at a file whose pages, rows or indices contradict each other: queries would leave out rows."""
    (found,) = database.execute("pragma integrity_check(1)").fetchone()
    if found != "ok":
        raise DataError(
            f"{path} is damaged ({' '.join(str(found).split())}). It was not changed: restore it from a "
            "copy, or fill another store with the same command"
        )
