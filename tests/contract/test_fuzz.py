"""Files nobody vouches for: whatever is done to them ends in our own errors, quickly and in little memory.

``make test`` tries 300 damaged files, ``make test-all`` 3,000 more.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import whole_files as files
from fuzzing import READ, REFUSED, Worker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import damaged_bytes, damaged_database, damaged_json, damaged_lines, damaged_tensors
from whole_files import ARRAYS, BUFFER, EPISODE, exorl_bytes, hdf5_bytes, npz_bytes

FEW, MANY = 300, 3_000


@st.composite
def odd_array(draw: st.DrawFn, values: Any) -> Any:
    """An array of another type or shape, or with other numbers in it."""
    kind = draw(st.sampled_from(["type", "shape", "number", "structure", "rows"]))
    if kind == "type":
        return values.astype(draw(st.sampled_from(["c16", "f2", "i8", "u1", "?", "U4", "M8[s]", ">f4"])))
    if kind == "shape":
        shapes = [(), (0,), values.shape[::-1], (*values.shape, 1), (1, *values.shape), (values.size,)]
        return np.resize(values, draw(st.sampled_from(shapes)))
    if kind == "number":
        changed = np.array(values, dtype=np.float64)
        place = draw(st.integers(0, changed.size - 1))
        changed.reshape(-1)[place] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e300, 2.0, -0.0]))
        return changed
    if kind == "structure":
        return np.zeros(len(values), dtype=[("a", "f4"), ("b", "i8")])
    return np.concatenate([values, values])[: draw(st.integers(0, 2 * len(values)))]


def damaged_arrays(
    arrays: dict[str, Any], write: Callable[[dict[str, Any]], bytes]
) -> st.SearchStrategy[bytes]:
    """A container of arrays with one of them odd, missing or renamed, or with its bytes damaged."""

    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        if draw(st.booleans()):
            return draw(damaged_bytes(write(arrays)))
        changed = dict(arrays)
        name = draw(st.sampled_from(sorted(changed)))
        action = draw(st.sampled_from(["change", "change", "change", "remove", "rename"]))
        values = changed.pop(name)
        if action == "change":
            changed[name] = draw(odd_array(values))
        elif action == "rename":
            changed[draw(st.sampled_from(["x", "next_x", "truncated", "resets", "timeouts", "1"]))] = values
        return write(changed)

    return damaged()


# format: (writes a whole one into a folder, who reads it, damage by the end of a file's name)
Damage = dict[str, Callable[[bytes], st.SearchStrategy[bytes]]]
PARTS: Damage = {".json": damaged_json, ".safetensors": damaged_tensors, ".bin": damaged_bytes}


def source(
    name: str, arrays: dict[str, Any], write: Callable[[dict[str, Any]], bytes], reader: str = "source"
) -> tuple[Callable[[Path], None], str, Damage]:
    def whole(folder: Path) -> None:
        (folder / name).write_bytes(write(arrays))

    return whole, reader, {name: lambda data: damaged_arrays(arrays, write)}


FORMATS: dict[str, tuple[Callable[[Path], None], str, Damage]] = {
    "native": (files.native, "native", PARTS),
    "first format": (files.first_format, "native", PARTS),
    "metamotivo": (files.foreign("metamotivo"), "foreign", PARTS),
    "td_jepa": (files.foreign("td_jepa_hilp"), "foreign", PARTS),
    "bfm_zero": (files.foreign("bfm_zero"), "foreign", PARTS),
    "latent": (files.latent, "latent", PARTS),
    "training state": (files.state, "state", PARTS),
    "dataset": (files.dataset, "set", PARTS),
    "npz": source("arrays.npz", ARRAYS, npz_bytes),
    "small npz": source("arrays.npz", ARRAYS, lambda arrays: npz_bytes(arrays, small=True)),
    "hdf5": source("arrays.h5", ARRAYS, hdf5_bytes),
    "exorl": source("exorl.zip", EPISODE, exorl_bytes),
    "buffer": source("buffer.hdf5", BUFFER, hdf5_bytes, "buffer"),
    "store": (files.store, "store", {".sqlite": damaged_database}),
    "metrics": (files.metrics, "run", {".jsonl": damaged_lines}),
    "minari": (files.minari_set, "minari", {".json": damaged_json, ".hdf5": damaged_bytes}),
}


def fuzz(worker: Worker, tmp_path: Path, name: str, cases: int) -> None:
    """Damage one file of a folder at a time; the whole folder is read before and after."""
    write, reader, damage = FORMATS[name]
    whole, folder = tmp_path / "whole", tmp_path / "damaged" / "folder"
    whole.mkdir()
    write(whole)
    victims = {p: k for p in sorted(whole.iterdir()) for k in damage if p.name.endswith(k)}
    outcomes = {READ: 0, REFUSED: 0}

    def ends(content: dict[str, bytes]) -> str:
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(whole, folder)
        for victim, data in content.items():
            (folder / victim).write_bytes(data)
        outcome, _ = worker.check(reader, folder)
        outcomes[outcome] += 1
        return outcome

    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def each(data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(list(victims)))
        ends({victim.name: data.draw(damage[victims[victim]](victim.read_bytes()))})

    assert ends({}) == READ, "the undamaged files are read"
    each()
    assert ends({}) == READ, "and still are"
    assert outcomes[REFUSED] > cases // 5


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_end_in_one_sentence(worker: Worker, tmp_path: Path, name: str) -> None:
    fuzz(worker, tmp_path, name, FEW // len(FORMATS) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_thousands_of_damaged_files_end_in_one_sentence(worker: Worker, tmp_path: Path, name: str) -> None:
    fuzz(worker, tmp_path, name, MANY // len(FORMATS) + 1)
