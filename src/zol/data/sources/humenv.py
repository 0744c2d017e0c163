"""HumEnv's files: the inference buffer beside the Meta Motivo models, and motions.

buffer_inference_500000.hdf5   flat arrays, one row per transition: observation, action, qpos, qvel and
                               next_observation, next_qpos, next_qvel
motion.hdf5                    groups ep_0, ep_1, …, each with observation [T, 358], qpos and qvel
goals.json                     poses by name, each an observation or an object with one
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.errors import DataError
from zol.common.reading import read_bytes, read_json
from zol.data.dataset import Dataset
from zol.data.episodes import check_finite, matrix
from zol.data.motion import Motion
from zol.data.sources.hdf5 import datasets, open_hdf5

LIST_LIMIT = 16 << 20  # bytes of a list of motion files
NEEDED = ("action", "next_qpos", "next_qvel", "next_observation")


def read_buffer(
    path: str | Path, *, rows: int | None = None, seed: int = 0, resets: Tensor | None = None
) -> Dataset:
    """The inference buffer, or ``rows`` transitions drawn from it without replacement.

    Rows are unrelated to each other, so no start states can be told from them: give ``resets`` ``[S, D]``
    from the world. Physics (qpos, qvel) of the next states come along, for relabelling.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        stored = datasets(file, path)
        missing = [name for name in NEEDED if name not in stored]
        if missing:
            raise DataError(
                f"{path} lacks {', '.join(missing)}; it has {', '.join(file)}. "
                "Expected Meta Motivo's inference buffer"
            )
        total = len(stored["action"])
        for name in NEEDED:
            if len(stored[name]) != total:
                raise DataError(f"{path}: '{name}' has {len(stored[name])} rows, 'action' has {total}")
        pick: Any = slice(None)
        if rows is not None and rows < total:
            pick = np.sort(np.random.default_rng(seed).choice(total, rows, replace=False))
        columns = {name: _read(item, pick) for name, item in stored.items() if item.shape[:1] == (total,)}
        return _dataset(columns, resets, {"source": "humenv", "file": path.name, "rows": rows or total})


def _dataset(columns: Mapping[str, NDArray[Any]], resets: Tensor | None, facts: dict[str, Any]) -> Dataset:
    after = np.concatenate([columns["next_qpos"], columns["next_qvel"]], axis=1).astype(np.float64)
    if "qpos" in columns and "qvel" in columns:
        before = np.concatenate([columns["qpos"], columns["qvel"]], axis=1).astype(np.float64)
    else:
        before = np.zeros_like(after)
    # Some buffers keep next observations only: rewards, prompts and ratios read nothing else.
    obs = columns.get("observation", np.zeros_like(columns["next_observation"]))
    return Dataset.from_arrays(
        obs,
        columns["action"],
        columns["next_observation"],
        truncated=np.ones(len(obs), dtype=bool),
        resets=None if resets is None else resets.numpy(),
        provenance=facts,
        physics=before,
        next_physics=after,
    )


def read_motion_files(path: str | Path) -> list[Motion]:
    """The clips of an HDF5 file, or of all files that a text file lists, one per line, relative to it."""
    path = Path(path)
    if path.suffix != ".txt":
        return read_motions(path)
    lines = [line.strip() for line in read_bytes(path, LIST_LIMIT).decode(errors="replace").splitlines()]
    found = [motion for line in lines if line for motion in read_motions(path.parent / line)]
    if not found:
        raise DataError(f"{path} lists no motion files: one name per line, relative to its folder")
    return found


def read_goals(path: str | Path, obs_dim: int) -> dict[str, Tensor]:
    """Poses by name, ``[D]`` each: an observation, or an object that has one as "observation"."""
    path = Path(path)
    goals = {}
    for name, found in read_json(path).items():
        numbers = found.get("observation") if isinstance(found, dict) else found
        if not isinstance(numbers, list) or not all(isinstance(x, int | float) for x in numbers):
            raise DataError(f"{path}: '{name[:80]}' is no list of numbers and has none as \"observation\"")
        goals[name] = torch.from_numpy(matrix(f"'{name[:80]}' of {path}", [numbers])[0])
        if len(goals[name]) != obs_dim:
            raise DataError(f"{path}: '{name[:80]}' has {len(goals[name])} numbers, a pose has {obs_dim}")
    if not goals:
        raise DataError(f"{path} holds no goals: names with observations")
    return goals


def read_motions(path: str | Path) -> list[Motion]:
    """All clips of a motion file."""
    path = Path(path)
    with open_hdf5(path) as file:
        names = sorted((n for n in file if n.startswith("ep_")), key=lambda n: (len(n), n))
        if not names:
            raise DataError(f"{path} has no groups ep_0, ep_1, …: not a HumEnv motion file")
        return [_motion(file[name], name, path) for name in names]


def _motion(group: Any, name: str, path: Path) -> Motion:
    stored = datasets(group, path)
    for needed in ("observation", "qpos", "qvel"):
        if needed not in stored:
            raise DataError(f"{path}: {name} lacks '{needed}'")
    obs = matrix(f"observation of {name} in {path}", stored["observation"][:])
    physics = np.concatenate([stored["qpos"][:], stored["qvel"][:]], axis=1).astype(np.float64)
    check_finite(f"qpos and qvel of {name} in {path}", physics)
    return Motion(f"{path.stem}/{name}", torch.from_numpy(obs), torch.from_numpy(physics))


def _read(column: Any, pick: Any) -> NDArray[Any]:
    values: NDArray[Any] = np.asarray(column[pick])
    return values.reshape(len(values), -1)
