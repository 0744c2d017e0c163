"""OGBench's published datasets: one npz file per dataset and one for validation, ``NAME-v0.npz``,
``NAME-v0-val.npz``.

A file has one row per state, as ours do: ``observations``, ``actions``, ``terminals`` (which marks the last
row of every episode and says nothing about why it ended), ``qpos``, ``qvel`` and, where there are buttons,
``button_states``. The last three together are the simulator state of our worlds, so that data can be
resimulated and filmed.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from zol.common import provenance
from zol.common.errors import DataError, unknown_name
from zol.data.dataset import Dataset
from zol.data.sources.arrays import from_states, rename
from zol.data.sources.npz import read_npz_file

URL = "https://rail.eecs.berkeley.edu/datasets/ogbench/{file}"
# World → columns of observations, actions, qpos, qvel and button states.
SIZES: dict[str, tuple[int, int, int, int, int]] = {
    "pointmaze-medium": (2, 2, 2, 2, 0),
    "pointmaze-large": (2, 2, 2, 2, 0),
    "antmaze-medium": (29, 8, 15, 14, 0),
    "antmaze-large": (29, 8, 15, 14, 0),
    "cube-single": (28, 5, 21, 20, 0),
    "cube-double": (37, 5, 28, 26, 0),
    "puzzle-3x3": (55, 5, 23, 23, 9),
}
NAMES = (
    *(f"pointmaze-{size}-{how}" for size in ("medium", "large") for how in ("navigate", "stitch")),
    *(f"antmaze-{size}-{how}" for size in ("medium", "large") for how in ("navigate", "stitch", "explore")),
    "cube-single-play",
    "cube-double-play",
    "puzzle-3x3-play",
)
KEYS = ("observations", "actions", "terminals", "qpos", "qvel", "button_states")


def parse(source: str) -> tuple[str, str]:
    """``ogbench/NAME`` or ``ogbench/NAME-val`` → names of dataset and file; near misses are suggested."""
    wanted = source.removeprefix("ogbench/")
    match = re.fullmatch(r"(.+?)(?:-v0)?(-val)?", wanted)
    name, val = (match[1], match[2] or "") if match else (wanted, "")
    if name not in NAMES:
        raise DataError(unknown_name("OGBench dataset", name, NAMES))
    return name, f"{name}-v0{val}.npz"


def find_local(folder: Path, file: str) -> Path:
    """A file in a directory of downloads, for machines without internet."""
    if not (folder / file).exists():
        raise DataError(f"no {file} in {folder}: OGBench's own cache is ~/.ogbench/data")
    return folder / file


def world_of(name: str) -> str:
    """The world that a dataset comes from."""
    return name.rpartition("-")[0]


def import_ogbench(
    path: Path,
    out: str | Path,
    *,
    name: str,
    episodes: int | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Convert one of the published files into a dataset at ``out``; ``episodes`` takes only the first so
    many.

    td_jepa takes the first 1000, which is all of most datasets, but a fifth of *stitch* and a tenth of
    *explore*.
    """
    world = world_of(name)
    arrays = read_npz_file(path)
    _check(arrays, path, world)
    extra = [arrays.pop(key) for key in ("qpos", "qvel", "button_states") if key in arrays]
    kept = {key: values for key, values in arrays.items() if key in KEYS}
    if episodes is not None:
        rows = _rows_of(kept["terminals"], episodes)
        kept, extra = {key: values[:rows] for key, values in kept.items()}, [part[:rows] for part in extra]
    kept["physics"] = np.concatenate([part.astype(np.float32) for part in extra], axis=1)
    facts = provenance.of_data(
        "ogbench", world=world, dataset=name, file=path.name, episodes=episodes, sha256=sha256
    )
    data = from_states(rename(kept, str(path)), str(path), facts)
    return data.save(out, progress=progress)


def _rows_of(terminals: NDArray[Any], episodes: int) -> int:
    """Rows of the first so many episodes."""
    ends = np.flatnonzero(terminals)
    if not 1 <= episodes <= len(ends):
        raise DataError(f"the first {episodes} episodes are asked for, and the file has {len(ends)}")
    return int(ends[episodes - 1]) + 1


def _check(arrays: dict[str, NDArray[Any]], path: Path, world: str) -> None:
    """Whether these arrays are what the dataset's world observes, in one sentence if not."""
    *sizes, buttons = SIZES[world]
    expected = dict(zip(("observations", "actions", "qpos", "qvel"), sizes, strict=True))
    expected |= {"button_states": buttons} if buttons else {}
    for key in ("terminals", *expected):
        if key not in arrays:
            raise DataError(
                f"{path} lacks '{key}', which OGBench's files have; it has {', '.join(sorted(arrays))}"
            )
    rows = len(arrays["observations"])
    for key, columns in expected.items():
        if arrays[key].shape != (rows, columns):
            raise DataError(
                f"'{key}' of {path} has shape {arrays[key].shape}, and {world} has {columns} columns there: "
                "this is the dataset of another environment"
            )
    if arrays["terminals"].shape != (rows,):
        raise DataError(f"'terminals' of {path} has shape {arrays['terminals'].shape}; expected ({rows},)")
