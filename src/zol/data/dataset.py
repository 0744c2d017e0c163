"""Reward-free experience: columns of rows, grouped into episodes.

A row is a *state*. An episode of L steps owns L + 1 consecutive rows, and the action in row i leads
from row i to row i + 1, so nothing is stored twice:

    row          0      1      2      3   |   4      5      6
    obs          s0     s1     s2     s3  |   s0     s1     s2
    action       a0     a1     a2     ·   |   a0     a1     ·        (last row of an episode: zeros)
    terminated   0      0      1      ·   |   0      0      ·        does the step end in a terminal state?
    truncated    0      0      0      ·   |   0      1      ·        was the episode cut by a time limit?

After a terminated step nothing follows, so a learner must not bootstrap there; after a truncated step the
episode would have gone on, so it must. Mixing them up biases every successor measure. Start states are kept
beside the rows, because density ratios begin there.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.data import disk, episodes
from zol.data.batch import Batch
from zol.data.writer import DatasetWriter, building

if TYPE_CHECKING:  # ``import zol`` stays light
    from rich.progress import Progress


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Episodes of transitions, in memory or memory-mapped from disk."""

    columns: Mapping[str, NDArray[Any]]  # obs, action, terminated, truncated and extras; each [R, ...]
    lengths: NDArray[np.int64]  # steps of each episode, [E]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    resets: NDArray[np.float32] | None = None  # start states drawn from the world itself, [S, D]
    # Of a set on disk: its mapping, and the digests that its index holds, [E, 16].
    mapped: disk.MappedColumns | None = field(default=None, repr=False)
    stored_digests: NDArray[np.uint8] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows = int(self.lengths.sum()) + len(self.lengths)
        for name in ("obs", "action", "terminated", "truncated"):
            if name not in self.columns:
                raise DataError(f"a dataset needs the column '{name}'; given: {', '.join(self.columns)}")
        for name, column in self.columns.items():
            if len(column) != rows:
                raise DataError(
                    f"column '{name}' has {len(column)} rows, but {len(self.lengths)} episodes with "
                    f"{int(self.lengths.sum())} steps need {rows} (steps + one final state each)"
                )

    @classmethod
    def from_arrays(
        cls,
        obs: ArrayLike,
        action: ArrayLike,
        next_obs: ArrayLike,
        terminated: ArrayLike | None = None,
        truncated: ArrayLike | None = None,
        *,
        resets: ArrayLike | None = None,
        provenance: Mapping[str, Any] | None = None,
        **extras: ArrayLike,
    ) -> "Dataset":
        """Build a dataset from plain transition arrays, each ``[N, ...]``.

        Rows that continue each other (``next_obs[i] == obs[i + 1]``, neither terminated nor truncated)
        become one episode. ``resets`` are start states ``[S, D]``; without them, the first state of
        every episode counts as one. An extra ``x`` comes with ``next_x`` or is taken as belonging to
        the step (its final row is zero).
        """
        columns, lengths = episodes.join(obs, action, next_obs, terminated, truncated, extras)
        starts = None if resets is None else episodes.matrix("resets", resets)
        if starts is not None and starts.shape[1] != columns["obs"].shape[1]:
            raise DataError(f"resets have {starts.shape[1]} columns, obs has {columns['obs'].shape[1]}")
        return cls(columns, lengths, dict(provenance or {}), starts)

    @classmethod
    def open(cls, path: str | Path) -> "Dataset":
        """The set stored at ``path``, memory-mapped: its whole episodes as of now."""
        path = Path(path)
        header, index = disk.Header.read(path), disk.read_index(path)
        lengths = index["steps"].astype(np.int64)
        mapped = disk.MappedColumns(path, header, int(lengths.sum()) + len(lengths))
        resets = disk.read_resets(path, header)
        return cls(mapped.arrays, lengths, header.provenance, resets, mapped, index["digest"])

    def save(
        self,
        path: str | Path,
        which: NDArray[np.int64] | None = None,
        *,
        progress: "Progress | None" = None,
    ) -> "Dataset":
        """Store the set, or the episodes ``which``, at a new ``path``, and open it from there."""
        chosen = np.arange(self.episodes) if which is None else which
        bar = Ticker(progress, "writing", len(chosen), note="episodes")
        with building(Path(path), self.provenance, self.resets) as writer:
            self.copy_to(writer, chosen, tuple(self.columns), bar)
        return Dataset.open(path)

    def copy_to(
        self, writer: DatasetWriter, which: NDArray[np.int64], columns: Sequence[str], bar: Ticker
    ) -> None:
        """Append the episodes ``which`` to another set, these columns of them."""
        # Some megabytes at a time: a commit waits for the disk, and memory stays small.
        for numbers in _chunks(which, self.lengths):
            chunk = [self.episode(int(number)) for number in numbers]
            writer.append_rows([{name: rows[name] for name in columns} for rows in chunk])
            bar.advance(len(numbers))

    def __repr__(self) -> str:
        where = "" if self.mapped is None else f" on disk at {self.mapped.path}"
        world = f" of {self.provenance['world']}" if "world" in self.provenance else ""
        return (
            f"Dataset({len(self):,} transitions{world} in {self.episodes:,} episodes, "
            f"{self.obs_dim} observation and {self.action_dim} action columns{where}); "
            "zol.pretrain(data) makes an agent of it"
        )

    def __len__(self) -> int:
        """The number of transitions."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def obs_dim(self) -> int:
        """The number of columns of an observation."""
        return int(self.columns["obs"].shape[1])

    @property
    def action_dim(self) -> int:
        """The number of columns of an action."""
        return int(self.columns["action"].shape[1])

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return len(self.lengths)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths)

    @cached_property
    def _equal_length(self) -> int:
        """The length of every episode, or 0 if they differ."""
        alike = len(self.lengths) > 0 and (self.lengths == self.lengths[0]).all()
        return int(self.lengths[0]) if alike else 0

    @cached_property
    def first_rows(self) -> NDArray[np.int64]:
        """The row in which each episode begins, ``[E]``."""
        return self._ends - self.lengths + np.arange(self.episodes)

    def episode(self, number: int) -> dict[str, NDArray[Any]]:
        """All rows of one episode (its steps and its final state), by column."""
        if not 0 <= number < self.episodes:
            raise DataError(f"there is no episode {number}: this set has {self.episodes}, counted from 0")
        first = int(self.first_rows[number])
        rows = slice(first, first + int(self.lengths[number]) + 1)
        return {name: column[rows] for name, column in self.columns.items()}

    def rows(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each step number in ``0 … len(self) − 1``: one more for every episode before it."""
        if self._equal_length:
            return steps + steps // self._equal_length
        return steps + self.episode_of(steps)

    def take(self, steps: NDArray[np.int64], *, physics: bool = True) -> Batch:
        """The transitions with these step numbers, with simulator states if stored and wanted."""
        rows = self.rows(steps)

        def read(name: str, at: NDArray[np.int64], count: int = 1) -> NDArray[Any]:
            if self.mapped is not None:
                return self.mapped.gather(name, at, count)
            return np.asarray(self.columns[name][at[:, None] + np.arange(count)])

        def tensor(values: NDArray[Any], dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)

        states = read("obs", rows, 2)
        # Only the last step of an episode can be terminated, so few rows of that column are ever read.
        last = self.rows(steps + 1) > rows + 1
        terminated = np.zeros(len(rows), dtype=bool)
        terminated[last] = read("terminated", rows[last])[:, 0]
        simulated: list[Tensor | None] = [None, None]
        if physics and "physics" in self.columns:
            pairs = read("physics", rows, 2)
            simulated = [tensor(pairs[:, k], torch.float64) for k in (1, 0)]
        return Batch(
            tensor(states[:, 0], torch.float32),
            tensor(read("action", rows)[:, 0], torch.float32),
            tensor(states[:, 1], torch.float32),
            tensor(terminated, torch.bool),
            *simulated,
        )

    def sample(self, n: int, generator: torch.Generator, *, physics: bool = True) -> Batch:
        """``n`` transitions drawn uniformly with replacement."""
        if len(self) == 0:
            raise DataError("this dataset has no transitions to sample from")
        return self.take(torch.randint(len(self), (n,), generator=generator).numpy(), physics=physics)

    def first(self, episodes: int) -> "Dataset":
        """The first ``episodes`` episodes, without copying anything."""
        lengths = self.lengths[:episodes]
        rows = int(lengths.sum()) + len(lengths)
        columns = {name: column[:rows] for name, column in self.columns.items()}
        digests = None if self.stored_digests is None else self.stored_digests[:episodes]
        return replace(self, columns=columns, lengths=lengths, stored_digests=digests)

    def episode_of(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The episode of each step number."""
        return np.searchsorted(self._ends, steps, side="right")

    def left(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Transitions from each step number to the end of its episode, itself included."""
        return np.asarray(self._ends[self.episode_of(steps)] - steps)

    def window_starts(self, length: int, last: int | None = None) -> NDArray[np.int64]:
        """Every step number at which ``length`` transitions of one episode begin.

        ``last`` restricts them to the last so many episodes.
        """
        first = 0 if last is None else self.episodes - last
        room = np.maximum(self.lengths[first:] - length + 1, 0)
        if not room.sum():
            raise DataError(
                f"no episode has {length} steps in a row: the longest has {int(self.lengths.max(initial=0))}"
            )
        begin = (self._ends - self.lengths)[first:]
        picks = np.arange(int(room.sum()))
        episode = np.searchsorted(np.cumsum(room), picks, side="right")
        return np.asarray(begin[episode] + picks - (np.cumsum(room) - room)[episode], dtype=np.int64)

    def transitions(self) -> Batch:
        """Every transition, in order. Meant for small sets: it copies them all."""
        return self.take(np.arange(len(self)))

    def starts(self, n: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Start states ``[S, D]``: all of them, or ``n`` drawn with replacement."""
        states = self.columns["obs"][self.first_rows] if self.resets is None else self.resets
        pool = torch.from_numpy(np.array(states, dtype=np.float32))
        if n is None:
            return pool
        return pool[torch.randint(len(pool), (n,), generator=generator)]

    def simulated_starts(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """First states of ``n`` episodes drawn with replacement, and their simulator states if stored."""
        rows = self.first_rows[torch.randint(self.episodes, (n,), generator=generator).numpy()]
        obs = torch.from_numpy(np.array(self.columns["obs"][rows], dtype=np.float32))
        if "physics" not in self.columns:
            return obs, None
        return obs, torch.from_numpy(np.array(self.columns["physics"][rows], dtype=np.float64))

    def digests(self) -> Iterator[bytes]:
        """The content hash of every episode, computed from its rows."""
        for number in range(self.episodes):
            yield disk.episode_digest(self.episode(number))
            if self.mapped is not None and number % 64 == 63:
                self.mapped.release()

    def verify(self, *, progress: "Progress | None" = None) -> None:
        """Read a whole set that was opened from disk and compare it with the digests it was stored with."""
        if self.mapped is None or self.stored_digests is None:
            raise DataError("only a set on disk can be compared with its digests: save it first")
        path = self.mapped.path
        bar = Ticker(progress, "checking", self.episodes, note="episodes")
        for number, digest in enumerate(self.digests()):
            if digest != bytes(self.stored_digests[number]):
                raise DataError(f"episode {number} of {path} is not what was written: restore it from a copy")
            for name, rows in self.episode(number).items():
                episodes.check_finite(f"'{name}' of episode {number} of {path}", rows)
            bar.advance()
        known = disk.Header.read(path).resets
        if self.resets is not None and known is not None and disk.resets_digest(self.resets) != known[1]:
            raise DataError(f"the start states of {path} are not what was written: restore it from a copy")

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=12)
        for name in sorted(self.columns):
            column = disk.canonical(name, self.columns[name][:0])
            digest.update(json.dumps([name, column.dtype.str, column.shape[1:]]).encode())
        digest.update(np.ascontiguousarray(self.lengths, "<i8").data)
        if self.stored_digests is not None:
            digest.update(np.ascontiguousarray(self.stored_digests).data)
        else:
            for episode in self.digests():
                digest.update(episode)
        if self.resets is not None:
            digest.update(disk.resets_digest(self.resets).encode())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """A short hash of everything in the set; equal data give equal fingerprints, stored or not."""
        return self._fingerprint


def _chunks(numbers: NDArray[np.int64], lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Episode numbers in groups of about 50,000 rows."""
    groups = np.cumsum(lengths[numbers] + 1) // 50_000
    yield from np.split(numbers, np.flatnonzero(np.diff(groups)) + 1)
