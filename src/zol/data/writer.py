"""Appending episodes to a set on disk, such that a kill at any moment costs at most the current one.

with DatasetWriter("runs/walker", provenance={"world": "walker"}) as writer:
    writer.append_episode(obs, action)          # obs [L + 1, D], action [L, A]
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zol.common.errors import DataError
from zol.common.files import lock, new_folder, write_atomic
from zol.data import disk
from zol.data.episodes import actions, check_finite, matrix

LOCK = "writer.lock"
MODEL_FILES = ("model.safetensors", "training.safetensors")  # of a checkpoint, of a run
Rows = Mapping[str, NDArray[Any]]


class DatasetWriter:
    """Creates the set at ``path``, or goes on with it; one writer at a time.

    The columns are those of the first episode. ``provenance`` and ``resets`` count for a new set; one
    that exists keeps its own.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        provenance: Mapping[str, Any] | None = None,
        resets: ArrayLike | None = None,
    ) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self.path / LOCK)
        self._files: dict[str, IO[bytes]] = {}
        self._provenance = dict(provenance or {})
        self._resets = None if resets is None else matrix("resets", resets)
        self._header: disk.Header | None = None
        self.episodes, self._rows = 0, 0
        try:
            if (self.path / disk.HEADER).exists():
                self._continue()
            elif any(p.suffix == ".bin" and p.name != disk.RESETS for p in self.path.iterdir()):
                raise DataError(f"{self.path} has column files but no {disk.HEADER}: choose another folder")
            elif any((self.path / name).exists() for name in MODEL_FILES):
                raise DataError(f"{self.path} holds a model: choose another folder for the data")
        except BaseException:
            self.close()
            raise

    def _continue(self) -> None:
        self._header = disk.Header.read(self.path)
        self._provenance = dict(self._header.provenance)
        index = disk.read_index(self.path)
        self.episodes, self._rows = len(index), int(index["steps"].sum()) + len(index)
        # Mapping the columns proves that everything the index promises is there.
        disk.MappedColumns(self.path, self._header, self._rows)
        self._open_files()
        self._cut_tail()

    def append_episode(
        self, obs: ArrayLike, action: ArrayLike, *, terminated: bool = False, **extras: ArrayLike
    ) -> None:
        """Add one episode: states ``[L + 1, D]`` and the actions between them, ``[L, A]``.

        ``terminated`` says that it ended in a terminal state; otherwise it was cut (``truncated``).
        Extras have L + 1 rows if they belong to states, L rows if they belong to steps.
        """
        self.append_rows([episode_rows(obs, action, terminated=terminated, **extras)])

    def append_batch(self, obs: NDArray[Any], action: NDArray[Any], **extras: NDArray[Any]) -> None:
        """Add n episodes of equal length, none of them terminated: ``[n, L + 1, D]``, ``[n, L, A]``."""
        each = [{name: values[i] for name, values in extras.items()} for i in range(len(obs))]
        self.append_rows([episode_rows(obs[i], action[i], **each[i]) for i in range(len(obs))])

    def append_rows(self, episodes: Sequence[Rows]) -> None:
        """Add whole episodes given as rows of every column, and commit them together."""
        if not episodes:
            return
        first = episodes[0]
        schema = self._header.schema if self._header else _schema(first)
        ready = [_conform(rows, schema, self.episodes + i) for i, rows in enumerate(episodes)]
        steps = [len(rows["obs"]) - 1 for rows in ready]
        records = b"".join(
            disk.record(self.episodes + i, steps[i], disk.episode_digest(rows))
            for i, rows in enumerate(ready)
        )
        try:
            if self._header is None:
                self._create(schema)
            for name in schema:
                self._write(name, *(rows[name].data for rows in ready))
            self._write(disk.INDEX, records)
        except OSError as error:
            self._cut_tail()
            raise DataError(
                f"cannot write to {self.path} ({error.strerror}); its {self.episodes} episodes are safe: "
                "make room and run the same command again"
            ) from error
        except BaseException:  # Ctrl-C must not leave half an episode for the next append to land behind
            self._cut_tail()
            raise
        self.episodes += len(ready)
        self._rows += sum(steps) + len(steps)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the set says about its origin."""
        return self._provenance

    def set_provenance(self, **facts: Any) -> None:
        """Add facts to the set's provenance, such as statistics known only at the end."""
        self._provenance.update(facts)
        if self._header is not None:
            self._header = disk.Header(self._header.schema, self._provenance, self._header.resets)
            self._header.write(self.path)

    def close(self) -> None:
        """Release the files and the lock; everything appended is already on disk."""
        for file in (*self._files.values(), self._lock):
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _create(self, schema: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        resets = None
        if self._resets is not None:
            if self._resets.shape[1:] != schema["obs"][1]:
                raise DataError(f"resets have {self._resets.shape[1]} columns, obs has {schema['obs'][1][0]}")
            write_atomic(self.path / disk.RESETS, np.ascontiguousarray(self._resets, "<f4").tobytes())
            resets = len(self._resets), disk.resets_digest(self._resets)
        header = disk.Header(schema, self._provenance, resets)
        header.write(self.path)
        self._header = header
        self._open_files()

    def _open_files(self) -> None:
        assert self._header is not None
        for name in (*self._header.schema, disk.INDEX):
            # Unbuffered: what was written is with the system even if this process is killed.
            self._files[name] = open(self._file(name), "ab", buffering=0)  # noqa: SIM115

    def _file(self, name: str) -> Path:
        return self.path / (name if name == disk.INDEX else f"{name}.bin")

    def _write(self, name: str, *parts: bytes | memoryview) -> None:
        file = self._files[name]
        for part in parts:
            rest = memoryview(part).cast("B")
            while len(rest):
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())

    def _cut_tail(self) -> None:
        """Drop what lies behind the last committed episode."""
        if self._header is None:
            return
        sizes = {disk.INDEX: self.episodes * disk.RECORD.itemsize}
        for name, (dtype, shape) in self._header.schema.items():
            sizes[name] = self._rows * dtype.itemsize * math.prod(shape)
        for name in (disk.INDEX, *self._header.schema):
            if name in self._files:
                os.truncate(self._file(name), sizes[name])


def episode_rows(
    obs: ArrayLike, action: ArrayLike, *, terminated: bool = False, **extras: ArrayLike
) -> dict[str, NDArray[Any]]:
    """One episode as rows: step columns get a zero in the row of the final state."""
    states, taken = matrix("obs", obs), actions(action)
    steps = len(taken)
    if steps == 0 or len(states) != steps + 1:
        raise DataError(
            f"obs has {len(states)} rows and action {steps}: an episode of L ≥ 1 steps has L + 1 states "
            "and L actions"
        )
    flag = np.zeros(steps + 1, dtype=bool)
    flag[steps - 1] = True
    no = np.zeros_like(flag)
    rows: dict[str, NDArray[Any]] = {
        "obs": states,
        "action": np.pad(taken, ((0, 1), (0, 0))),
        "terminated": flag if terminated else no,
        "truncated": no if terminated else flag,
    }
    for name, values in extras.items():
        array = np.asarray(values)
        if array.ndim == 0 or len(array) not in (steps, steps + 1):
            raise DataError(
                f"'{name}' has shape {array.shape}; expected {steps} rows (steps) or one more (states)"
            )
        pad = [(0, steps + 1 - len(array))] + [(0, 0)] * (array.ndim - 1)
        rows[disk.column_name(name)] = np.pad(array, pad)
    return rows


@contextmanager
def building(
    path: Path, provenance: Mapping[str, Any], resets: ArrayLike | None = None
) -> Iterator[DatasetWriter]:
    """A writer for a set that appears at ``path`` when it is complete, or not at all."""
    with new_folder(path) as folder:
        with DatasetWriter(folder, provenance=provenance, resets=resets) as writer:
            yield writer
            if writer.episodes == 0:
                raise DataError(f"there is no episode to write to {path}")
        (folder / LOCK).unlink()


def _schema(rows: Rows) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    stored = {name: disk.canonical(disk.column_name(name), values) for name, values in rows.items()}
    return {name: (values.dtype, values.shape[1:]) for name, values in stored.items()}


def _conform(
    rows: Rows, schema: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], number: int
) -> dict[str, NDArray[Any]]:
    """The rows as they are stored, after checking that they fit the set."""
    if set(rows) != set(schema):
        raise DataError(
            f"episode {number} has the columns {', '.join(sorted(rows))}; "
            f"this set has {', '.join(sorted(schema))}"
        )
    ready = {}
    for name, (dtype, shape) in schema.items():
        values = rows[name]
        if values.shape != (len(rows["obs"]), *shape):
            raise DataError(
                f"'{name}' of episode {number} has shape {values.shape}; this set needs "
                f"{(len(rows['obs']), *shape)}"
            )
        if values.dtype.kind not in "biuf":
            raise DataError(f"'{name}' of episode {number} has type {values.dtype}; this set needs {dtype}")
        with np.errstate(over="ignore"):  # what is too large for the type becomes infinite, and is refused
            ready[name] = np.ascontiguousarray(values, dtype)
        check_finite(f"'{name}' of episode {number}", ready[name])
    return ready
