"""The result store: one SQLite file, one row per cell of the benchmark, raw episode returns in it.

A cell is named by everything that decides its numbers: benchmark (with its settings), domain, task, method,
configuration, weights of the model, pretraining seed, evaluation seed. The database keeps that name unique: a
cell that is there already is left as it is, so that work which was done twice, by two processes or after a
crash, never counts twice. Rows of one job appear together or not at all.

Settings are part of a cell's name. When a setting is renamed, stores of earlier versions are brought up to
date as they are opened (:data:`RENAMED`), so that old and new results of the same settings stay one cell.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zol.bench.database import (
    APPLICATION,
    connected,
    keep_log,
    require_definition,
    require_own,
    require_whole,
    stranger,
    table_columns,
)
from zol.common import provenance
from zol.common.errors import DataError
from zol.common.reading import JSON_LIMIT, parse_json

SCHEMA = 2
# Since format 2: methods whose name begins so, and what their settings and diagnostics are called now.
RENAMED: dict[str, dict[str, str]] = {
    "rehearse": {
        "worth": "min_gain",
        "trust": "min_correlation",
        "trust_prompts": "min_correlation_prompts",
        "miss": "max_one_step_error",
        "strangers": "random_latents",
        "trusted": "correlation",
        "missed": "one_step_error",
    },
    "": {"trust": "trust_region", "trust_norm": "trust_region_norm", "as far as": "as_far_as"},
}
UNKNOWN_SEED = -1  # a model that does not say how it was trained; its weights still tell it apart


@dataclass(frozen=True)
class Key:
    """The name of a cell."""

    benchmark: str
    domain: str
    task: str
    method: str
    configuration: str  # canonical JSON
    model: str  # hash of the weights
    pretraining_seed: int
    evaluation_seed: int


@dataclass(frozen=True)
class Result:
    """A cell: what one method earned on one task with one model, and how that came about."""

    key: Key
    returns: NDArray[np.float64]  # [episodes]; none yet where it is still to be tested
    estimate: float | None = None  # what the method expected, mean reward per step
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)  # settings the method ended up with
    offline: bool = True
    environment_steps: int = 0  # taken while adapting
    seconds: float = 0.0  # of adapting
    facts: Mapping[str, Any] = field(default_factory=dict)  # command, commit, versions, hardware
    finished: str = ""  # UTC


def canonical(settings: Mapping[str, Any]) -> str:
    """Settings as one line of JSON that depends on their values only."""
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str)


def stamp(command: str | None = None) -> dict[str, Any]:
    """Command, commit, versions and hardware, to be kept with every cell."""
    found = provenance.of_numbers()
    if command is not None:
        found["command"] = command
    hardware = found.pop("cpu")
    return {"command": found.pop("command"), "commit": found.pop("commit"), "hardware": hardware} | {
        "versions": found
    }


def now() -> str:
    """The time, as it is stored."""
    return datetime.now(UTC).isoformat(timespec="seconds")


KEY = [f.name for f in fields(Key)]
KINDS = [f.type for f in fields(Key)]
CREATE = f"""
create table if not exists results (
    {", ".join(f"{f.name} {'integer' if f.type is int else 'text'} not null" for f in fields(Key))},
    returns blob not null,
    episodes integer not null,
    estimate real,
    diagnostics text not null,
    chosen text not null,
    offline integer not null,
    environment_steps integer not null,
    seconds real not null,
    command text not null, "commit" text not null, hardware text not null, versions text not null,
    finished text not null,
    unique ({", ".join(KEY)})
)
"""
COLUMNS = (
    *KEY,
    *("returns", "episodes", "estimate", "diagnostics", "chosen", "offline", "environment_steps", "seconds"),
    *("command", "commit", "hardware", "versions", "finished"),
)


class Store:
    """A file of results that several processes of one machine may read and write at once."""

    def __init__(self, path: str | Path) -> None:
        """Open the file, or create it."""
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} is not a result store that can be opened: {error.strerror}") from error
        exists = require_own(self.path, COLUMNS)
        with self._connected("opening") as database:
            if exists:
                require_definition(database, self.path, CREATE)
                require_whole(database, self.path)
            else:  # in one transaction: a kill leaves an empty file or a whole one
                database.execute("begin immediate")
                if table_columns(database) is None:  # they were in its log only
                    raise stranger(self.path)
                database.execute(CREATE)
                self._sign(database)
        with self._connected("opening") as database:
            # A kill never leaves half a transaction behind. A store that is only read keeps its bytes: people
            # keep them under git.
            keep_log(database)
            (version,) = database.execute("pragma user_version").fetchone()
            if not 0 <= version <= SCHEMA:
                raise DataError(f"{path} has format {version}, this zol reads {SCHEMA}: update it")
            if version < SCHEMA:  # 0: whoever made it was killed before the first result
                _bring_up_to_date(database, self.path)
                self._sign(database)

    def add(self, results: Iterable[Result]) -> int:
        """Store cells in one transaction; how many of them were new."""
        rows = [_to_row(result) for result in results]
        if not rows:
            return 0
        columns = ", ".join(f'"{name}"' for name in rows[0])
        marks = ", ".join("?" * len(rows[0]))
        with self._connected("adding results to") as database:
            before = database.total_changes
            # "or ignore" would also swallow rows that are malformed; only a cell that exists is left alone.
            database.executemany(
                f"insert into results ({columns}) values ({marks}) on conflict ({', '.join(KEY)}) do nothing",
                [tuple(row.values()) for row in rows],
            )
            added = database.total_changes - before
            if added:
                self._sign(database)
            return added

    def keys(self) -> set[Key]:
        """The names of all cells."""
        with self._connected() as database:
            rows = database.execute(f"select {', '.join(KEY)} from results").fetchall()
        return {_key(row, self.path) for row in rows}

    def results(self, **wanted: str | int) -> list[Result]:
        """Cells whose key has these values, in the order in which they were finished."""
        unknown = set(wanted) - set(KEY)
        if unknown:
            raise DataError(f"{min(unknown)} is no part of a cell's name: {', '.join(KEY)}")
        condition = " and ".join(f"{name} = ?" for name in wanted) or "1"
        with self._connected() as database:
            database.row_factory = sqlite3.Row
            query = f"select * from results where {condition} order by rowid"
            rows = database.execute(query, tuple(wanted.values())).fetchall()
        return [_from_row(row, self.path) for row in rows]

    def __contains__(self, key: Key) -> bool:
        condition = " and ".join(f"{name} = ?" for name in KEY)
        with self._connected() as database:
            found = database.execute(f"select 1 from results where {condition}", astuple(key)).fetchone()
        return found is not None

    def __len__(self) -> int:
        with self._connected() as database:
            return int(database.execute("select count(*) from results").fetchone()[0])

    @contextmanager
    def _connected(self, doing: str = "reading") -> Iterator[sqlite3.Connection]:
        with connected(self.path, doing) as database:
            yield database

    def _sign(self, database: sqlite3.Connection) -> None:
        """Note in the file that it is a result store of this format; with the transaction, or not at all."""
        database.execute(f"pragma application_id = {APPLICATION}")
        database.execute(f"pragma user_version = {SCHEMA}")


def renamed(method: str, value: Any) -> Any:
    """Settings or diagnostics of a method of format 1, nested or not, under their names of today."""
    names = next(names for prefix, names in RENAMED.items() if method.startswith(prefix))
    if not isinstance(value, dict):
        return value
    return {names.get(name, name): renamed(method, inner) for name, inner in value.items()}


def renamed_method(method: str) -> str:
    """A method's name of format 1, which may carry settings, ``rehearse worth=0.0``."""
    base, *changes = method.split(" ")
    parts = (change.partition("=") for change in changes)
    return " ".join([base, *(f"{next(iter(renamed(base, {name: 0})))}={value}" for name, _, value in parts)])


def _bring_up_to_date(database: sqlite3.Connection, path: Path) -> None:
    """From format 1, in one transaction (the caller's): all rows or none."""
    columns = ("configuration", "diagnostics", "chosen")
    rows = database.execute(f"select rowid, method, {', '.join(columns)} from results").fetchall()
    for number, method, *texts in rows:
        updated = [canonical(renamed(method, _settings(text, path))) for text in texts]
        database.execute(
            f"update results set method = ?, {', '.join(f'{name} = ?' for name in columns)} where rowid = ?",
            (renamed_method(method), *updated, number),
        )


def _to_row(result: Result) -> dict[str, Any]:
    returns = np.ascontiguousarray(result.returns, dtype="<f8")
    what = f"{result.key.method} on {result.key.task}"
    if returns.ndim != 1 or len(returns) == 0 or not np.isfinite(returns).all():
        raise DataError(f"returns of {what} are not finite numbers [episodes]; the store was not changed")
    # SQLite would keep a NaN as a missing value, in silence
    if not all(map(math.isfinite, (result.estimate or 0.0, result.seconds))):
        raise DataError(
            f"the estimate {result.estimate} or the time {result.seconds} of {what} is not a finite number; "
            "the store was not changed"
        )
    facts = result.facts
    return asdict(result.key) | {
        "returns": returns.tobytes(),
        "episodes": len(returns),
        "estimate": result.estimate,
        "diagnostics": canonical(result.diagnostics),
        "chosen": canonical(result.chosen),
        "offline": int(result.offline),
        "environment_steps": result.environment_steps,
        "seconds": result.seconds,
        "command": str(facts.get("command", "")),
        "commit": str(facts.get("commit", "")),
        "hardware": str(facts.get("hardware", "")),
        "versions": canonical(facts.get("versions", {})),
        "finished": result.finished or now(),
    }


def _from_row(row: sqlite3.Row, path: Path) -> Result:
    blob, estimate, seconds = row["returns"], row["estimate"], row["seconds"]
    if not isinstance(blob, bytes) or len(blob) == 0 or len(blob) != 8 * _whole(row, "episodes", path):
        raise _damaged(path, "returns are not one number per episode")
    returns = np.frombuffer(blob, dtype="<f8").astype(np.float64)
    if not np.isfinite(returns).all() or not all(
        map(_finite, (seconds, 0.0 if estimate is None else estimate))
    ):
        raise _damaged(path, "returns, estimate or seconds are not finite numbers")
    texts = {name: row[name] for name in ("command", "commit", "hardware", "finished")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise _damaged(path, "command, commit, hardware or date are not text")
    finished = texts.pop("finished")
    return Result(
        key=_key([row[name] for name in KEY], path),
        returns=returns,
        estimate=estimate,
        diagnostics=_settings(row["diagnostics"], path),
        chosen=_settings(row["chosen"], path),
        offline=bool(_whole(row, "offline", path)),
        environment_steps=_whole(row, "environment_steps", path),
        seconds=seconds,
        facts=texts | {"versions": _settings(row["versions"], path)},
        finished=finished,
    )


def _key(row: Sequence[Any], path: Path) -> Key:
    if not all(type(value) is kind for value, kind in zip(row, KINDS, strict=True)):
        raise _damaged(path, f"the name of a cell is {list(row)!s:.200}")
    return Key(*row)


def _finite(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def _whole(row: sqlite3.Row, name: str, path: Path) -> int:
    if not isinstance(row[name], int):
        raise _damaged(path, f"{name} is {row[name]!r:.80}")
    return int(row[name])


def _settings(text: Any, path: Path) -> dict[str, Any]:
    if not isinstance(text, str) or len(text) > JSON_LIMIT:
        raise _damaged(path, f"settings or diagnostics are not text of at most {JSON_LIMIT} letters")
    try:
        return parse_json(text, "what should be settings or diagnostics", DataError, nan=True)
    except DataError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"a row of {path} is damaged: {what}. It was not changed: restore it from a copy, or fill another "
        "store with the same command"
    )
