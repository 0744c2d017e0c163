"""Data nobody vouches for: hundreds of damaged files end in our own errors, and nothing is half-written."""

import io
import random
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from test_foreign_fuzz import mutate_json

from zol.common.errors import ZolError
from zol.data import Dataset, DatasetWriter
from zol.data.sources.arrays import import_arrays
from zol.data.sources.exorl import import_exorl

RNG = np.random.default_rng(0)
ARRAYS = {
    "obs": RNG.standard_normal((20, 3)),
    "action": RNG.uniform(-1, 1, (20, 2)),
    "next_obs": RNG.standard_normal((20, 3)),
    "terminated": np.zeros(20),
}
MUTATIONS = 200


def damaged(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 20])):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def exorl_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for number in range(3):
            episode = io.BytesIO()
            states, steps = RNG.standard_normal((6, 4)), RNG.uniform(-1, 1, (6, 2))
            np.savez(episode, observation=states, action=steps, discount=np.ones((6, 1)), physics=states)
            file.writestr(f"buffer/episode_{number}_5.npz", episode.getvalue())


def hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, values in ARRAYS.items():
            file[name] = values


SOURCES = {
    "exorl.zip": (exorl_zip, import_exorl),
    "plain.npz": (lambda path: np.savez(path, **ARRAYS), import_arrays),
    "small.npz": (lambda path: np.savez_compressed(path, **ARRAYS), import_arrays),
    "arrays.h5": (hdf5, import_arrays),
}


@pytest.mark.filterwarnings("ignore")  # NumPy warns of odd headers before it gives up on them
@pytest.mark.parametrize("name", SOURCES)
def test_damaged_sources_end_in_one_sentence_and_leave_nothing(tmp_path: Path, name: str) -> None:
    write, read = SOURCES[name]
    source, out, rng = tmp_path / name, tmp_path / "out", random.Random(name)
    write(source)
    original = source.read_bytes()
    refused = read_whole = 0
    for _ in range(MUTATIONS):
        source.write_bytes(damaged(original, rng))
        try:
            read(source, out)
            read_whole += 1
        except ZolError as error:
            refused += "\n" not in str(error)
            assert [p.name for p in tmp_path.iterdir()] == [name]
        shutil.rmtree(out, ignore_errors=True)
    assert refused + read_whole == MUTATIONS, "every error is one line"
    assert refused > MUTATIONS // 3
    source.write_bytes(original)
    assert len(read(source, out))


def test_damaged_sets_end_in_one_sentence(tmp_path: Path) -> None:
    """Opening, sampling and appending; a flipped bit inside a column is for ``zol data check`` to find."""
    folder, rng = tmp_path / "set", random.Random("set")
    Dataset.from_arrays(**ARRAYS, resets=ARRAYS["obs"], provenance={"world": "walker"}).save(folder)
    originals = {path: path.read_bytes() for path in folder.iterdir()}
    refused = opened = 0
    for _ in range(3 * MUTATIONS):
        victim = rng.choice(list(originals))
        if victim.suffix == ".json":
            victim.write_text(mutate_json(originals[victim].decode(), rng), encoding="utf-8")
        else:
            victim.write_bytes(damaged(originals[victim], rng))
        try:
            data = Dataset.open(folder)
            data.fingerprint()
            if len(data):
                data.sample(8, torch.Generator().manual_seed(0))
                data.starts()
            with DatasetWriter(folder):
                pass
            opened += 1
        except ZolError as error:
            refused += "\n" not in str(error)
        for path, content in originals.items():
            path.write_bytes(content)
    assert refused + opened == 3 * MUTATIONS, "every error is one line"
    assert refused > MUTATIONS // 2
