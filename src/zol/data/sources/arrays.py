"""Plain arrays in one file: npz, or HDF5 with top-level datasets.

Two layouts are understood, by the usual names of the field:

* transitions: ``obs, action, next_obs`` (and ``terminated``, ``truncated``), one row per step;
* states: ``obs, action`` and a flag that marks the last *state* of every episode, as OGBench stores them.
  The last row's action leads nowhere and is dropped; such data cannot say whether an end was terminal,
  so every episode counts as cut.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from zol.common import provenance
from zol.common.errors import DataError
from zol.common.reading import regular_file
from zol.data.dataset import Dataset
from zol.data.disk import column_name
from zol.data.episodes import actions, flags, matrix
from zol.data.sources.hdf5 import datasets, open_hdf5
from zol.data.sources.npz import read_npz_file

ALIASES = {
    "obs": ("obs", "observation", "observations"),
    "action": ("action", "actions"),
    "next_obs": ("next_obs", "next_observation", "next_observations"),
    "terminated": ("terminated", "terminal", "terminals", "dones_float"),
    "truncated": ("truncated", "timeout", "timeouts"),
    "reward": ("reward", "rewards"),
    "resets": ("resets", "starts", "initial_observations"),
}
HDF5 = (".h5", ".hdf5")


def import_arrays(
    source: str | Path, out: str | Path, *, world: str | None = None, progress: Progress | None = None
) -> Dataset:
    """Convert an npz or HDF5 file of arrays into a dataset at ``out``; further arrays become extras."""
    source = Path(source)
    regular_file(source, DataError)
    arrays = rename(_read_hdf5(source) if source.suffix in HDF5 else read_npz_file(source), str(source))
    facts = provenance.of_data("arrays", world=world, file=source.name)
    if "next_obs" in arrays:
        data = Dataset.from_arrays(**arrays, provenance=facts)
    else:
        data = from_states(arrays, str(source), facts)
    return data.save(out, progress=progress)


def from_states(arrays: dict[str, NDArray[Any]], where: str, facts: Mapping[str, Any]) -> Dataset:
    """The layout with one row per state, which is also ours."""
    resets = arrays.pop("resets", None)
    ends = _state_ends(arrays, where)
    lengths = np.diff(ends, prepend=-1) - 1
    if (lengths == 0).any():
        raise DataError(
            f"{where}: episode {int(lengths.argmin())} is a single state; an episode of L ≥ 1 steps has L + 1"
        )
    taken = arrays.pop("action").copy()
    taken[ends] = 0  # whatever stood there led nowhere
    cut = np.zeros(len(taken), dtype=bool)
    cut[ends - 1] = True
    columns = {"obs": matrix("obs", arrays.pop("obs")), "action": actions(taken)}
    columns |= {"terminated": np.zeros_like(cut), "truncated": cut}
    columns |= {column_name(name): values for name, values in arrays.items()}
    return Dataset(columns, lengths, facts, None if resets is None else matrix("resets", resets))


def rename(arrays: Mapping[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """The arrays under our names; what must be there and is not is an error."""
    names = {alias: ours for ours, aliases in ALIASES.items() for alias in aliases}
    renamed: dict[str, NDArray[Any]] = {}
    for name, values in arrays.items():
        ours = names.get(name, name)
        if ours in renamed:
            raise DataError(f"{where} has '{name}' beside another array that also means '{ours}'")
        renamed[ours] = values
    for name in ("obs", "action"):
        if name not in renamed:
            raise DataError(
                f"{where} lacks '{name}' (or {' or '.join(ALIASES[name][1:])}); it has {', '.join(arrays)}"
            )
    return renamed


def _state_ends(arrays: dict[str, NDArray[Any]], where: str) -> NDArray[np.int64]:
    """The last row of each episode, in the layout with one row per state; removes the flags."""
    rows = arrays["obs"].shape[0] if arrays["obs"].ndim else 0
    if rows == 0:
        raise DataError(f"obs of {where} is empty: a dataset needs at least one transition")
    for name, values in arrays.items():
        if values.ndim == 0 or len(values) != rows:
            raise DataError(f"'{name}' of {where} has shape {values.shape}, obs has {rows} rows")
    marks = [flags(n, arrays.pop(n), rows) for n in ("terminated", "truncated") if n in arrays]
    if not marks:
        raise DataError(
            f"{where} has neither next_obs nor a flag that marks where episodes end (terminals, timeouts)"
        )
    last = np.logical_or.reduce(marks)
    last[-1] = True
    return np.flatnonzero(last)


def _read_hdf5(path: Path) -> dict[str, NDArray[Any]]:
    with open_hdf5(path) as file:
        return {name: item[()] for name, item in datasets(file, path).items()}
