"""Reward-free experience: columns of rows, grouped into episodes.

A row is a *state*. An episode of L steps owns L + 1 consecutive rows, and the action in row i leads
from row i to row i + 1, so nothing is stored twice:

    row          0      1      2      3   |   4      5      6
    obs          s0     s1     s2     s3  |   s0     s1     s2
    action       a0     a1     a2     ·   |   a0     a1     ·        (last row of an episode: zeros)
    terminated   0      0      1      ·   |   0      0      ·        does the step end in a terminal state?
    truncated    0      0      0      ·   |   0      1      ·        was the episode cut by a time limit?

``terminated`` stops bootstrapping, ``truncated`` does not: mixing them up biases every successor
measure. Start states are first class because density ratios begin there.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zol.errors import DataError
from zol.tasks import Layout, States


@dataclass(frozen=True)
class Batch:
    """Transitions (s, a, s'); ``N`` rows. ``next_physics`` is there if the data store it."""

    obs: Tensor  # [N, D]
    action: Tensor  # [N, A]
    next_obs: Tensor  # [N, D]
    terminated: Tensor  # [N] bool
    next_physics: Tensor | None = None  # [N, P]

    def __len__(self) -> int:
        return len(self.obs)

    def to(self, device: torch.device | str) -> "Batch":
        """The same transitions on another device."""
        return Batch(
            self.obs.to(device),
            self.action.to(device),
            self.next_obs.to(device),
            self.terminated.to(device),
            None if self.next_physics is None else self.next_physics.to(device),
        )

    def arrived(self, layout: Layout) -> States:
        """The states the transitions lead to: what a reward of this data is computed on."""
        return States(self.next_obs, layout, action=self.action, physics=self.next_physics)


@dataclass(frozen=True)
class Dataset:
    """Episodes of transitions, in memory or memory-mapped from disk."""

    columns: Mapping[str, NDArray[Any]]  # obs, action, terminated, truncated and extras; each [R, ...]
    lengths: NDArray[np.int64]  # steps of each episode, [E]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    resets: NDArray[np.float32] | None = None  # start states drawn from the world itself, [S, D]

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
        # Step k of the whole set lives in row k + (number of episodes that ended before it).
        object.__setattr__(self, "_ends", np.cumsum(self.lengths))

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
        columns, lengths = _join_episodes(obs, action, next_obs, terminated, truncated, extras)
        starts = None if resets is None else _matrix("resets", resets)
        if starts is not None and starts.shape[1] != columns["obs"].shape[1]:
            raise DataError(f"resets have {starts.shape[1]} columns, obs has {columns['obs'].shape[1]}")
        return cls(columns, lengths, dict(provenance or {}), starts)

    def __len__(self) -> int:
        """Number of transitions."""
        return int(self.lengths.sum())

    @property
    def obs_dim(self) -> int:
        """Columns of an observation."""
        return int(self.columns["obs"].shape[1])

    @property
    def action_dim(self) -> int:
        """Columns of an action."""
        return int(self.columns["action"].shape[1])

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    def rows(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each step number in ``0 … len(self) − 1``."""
        ends: NDArray[np.int64] = self.__dict__["_ends"]
        return steps + np.searchsorted(ends, steps, side="right")

    def take(self, steps: NDArray[np.int64]) -> Batch:
        """The transitions with these step numbers."""
        rows = self.rows(steps)

        def tensor(name: str, at: NDArray[np.int64], dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(self.columns[name][at])).to(dtype)

        return Batch(
            tensor("obs", rows, torch.float32),
            tensor("action", rows, torch.float32),
            tensor("obs", rows + 1, torch.float32),
            tensor("terminated", rows, torch.bool),
            tensor("physics", rows + 1, torch.float64) if "physics" in self.columns else None,
        )

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """``n`` transitions drawn uniformly with replacement."""
        if len(self) == 0:
            raise DataError("this dataset has no transitions to sample from")
        return self.take(torch.randint(len(self), (n,), generator=generator).numpy())

    def transitions(self) -> Batch:
        """Every transition, in order. Meant for small sets: it copies them all."""
        return self.take(np.arange(len(self)))

    def starts(self, n: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Start states ``[S, D]``: all of them, or ``n`` drawn with replacement."""
        if self.resets is not None:
            pool = torch.from_numpy(np.asarray(self.resets, dtype=np.float32))
        else:
            ends: NDArray[np.int64] = self.__dict__["_ends"]
            first = np.concatenate([[0], ends[:-1] + np.arange(1, len(ends))]).astype(np.int64)
            pool = torch.from_numpy(np.asarray(self.columns["obs"][first], dtype=np.float32))
        if n is None:
            return pool
        return pool[torch.randint(len(pool), (n,), generator=generator)]

    def fingerprint(self) -> str:
        """A short hash of everything in the set; equal data give equal fingerprints."""
        digest = hashlib.blake2b(digest_size=12)
        digest.update(np.ascontiguousarray(self.lengths).tobytes())
        for name in sorted(self.columns):
            column = np.ascontiguousarray(self.columns[name])
            digest.update(json.dumps([name, column.dtype.str, column.shape]).encode())
            digest.update(column.tobytes())
        return digest.hexdigest()


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.ndim != 2:
        raise DataError(f"{name} has shape {array.shape}; expected two dimensions, [rows, columns]")
    array = array.astype(np.float32)
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise DataError(f"{name} has NaN or infinite values in {bad.sum()} rows, first in row {bad.argmax()}")
    return array


def _flags(name: str, values: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    if values is None:
        return np.zeros(n, dtype=bool)
    array = np.asarray(values).reshape(-1).astype(bool)
    if len(array) != n:
        raise DataError(f"{name} has {len(array)} entries, obs has {n} rows")
    return array


def _join_episodes(
    obs: ArrayLike,
    action: ArrayLike,
    next_obs: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None,
    extras: Mapping[str, ArrayLike],
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Transition arrays → state rows and episode lengths (see the drawing at the top)."""
    s, a, s2 = _matrix("obs", obs), _matrix("action", action), _matrix("next_obs", next_obs)
    n = len(s)
    if n == 0:
        raise DataError("obs is empty: a dataset needs at least one transition")
    if len(a) != n or s2.shape != s.shape:
        raise DataError(
            f"obs {s.shape}, action {a.shape} and next_obs {s2.shape} do not belong together: "
            "all need the same number of rows, and obs and next_obs the same columns"
        )
    end, cut = _flags("terminated", terminated, n), _flags("truncated", truncated, n)
    last = end | cut | np.append((s2[:-1] != s[1:]).any(axis=1), True)
    lengths = np.diff(np.flatnonzero(np.append(True, last))).astype(np.int64)
    step_rows = np.arange(n) + np.cumsum(last) - last
    final_rows = step_rows[last] + 1
    rows = n + len(lengths)

    def spread(values: NDArray[Any], final: NDArray[Any] | None) -> NDArray[Any]:
        column = np.zeros((rows, *values.shape[1:]), dtype=values.dtype)
        column[step_rows] = values
        if final is not None:
            column[final_rows] = final[last]
        return column

    columns: dict[str, NDArray[Any]] = {
        "obs": spread(s, s2),
        "action": spread(a, None),
        "terminated": spread(end, None),
        "truncated": spread(cut | (last & ~end), None),
    }
    for name, values in extras.items():
        if name.startswith("next_") and name.removeprefix("next_") in extras:
            continue
        after = extras.get(f"next_{name}")
        columns[name] = spread(np.asarray(values), None if after is None else np.asarray(after))
    return columns, lengths
