"""Plain arrays in npz and HDF5, in the two layouts people use."""

from pathlib import Path

import numpy as np
import pytest

from zol.common.errors import DataError
from zol.data.sources.arrays import import_arrays
from zol.testing import check_dataset

h5py = pytest.importorskip("h5py")

# Two episodes, 2 steps (terminated) and 1 step (timed out), as D4RL names things.
TRANSITIONS = {
    "observations": np.array([[0.0], [1.0], [5.0]]),
    "actions": np.array([[0.1], [0.2], [0.3]]),
    "next_observations": np.array([[1.0], [2.0], [6.0]]),
    "terminals": np.array([0, 1, 0]),
    "timeouts": np.array([0, 0, 1]),
    "rewards": np.array([1.0, 2.0, 3.0]),
}
# The same as rows of states, as OGBench stores them: `terminals` marks the last state.
STATES = {
    "observations": np.array([[0.0], [1.0], [2.0], [5.0], [6.0]], np.float32),
    "actions": np.array([[0.1], [0.2], [9.0], [0.3], [9.0]], np.float32),
    "terminals": np.array([False, False, True, False, True]),
    "qpos": np.arange(5.0)[:, None],
}


def write(path: Path, arrays) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
            file.create_group("metadata")
    return path


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_transitions(tmp_path: Path, suffix: str):
    data = import_arrays(write(tmp_path / f"in{suffix}", TRANSITIONS), tmp_path / "out", world="toy")
    check_dataset(data)
    assert data.lengths.tolist() == [2, 1]
    batch = data.transitions()
    assert batch.next_obs.ravel().tolist() == [1, 2, 6]
    assert batch.terminated.tolist() == [False, True, False]
    assert data.columns["reward"].tolist() == [1, 2, 0, 3, 0]
    assert data.provenance["world"] == "toy"


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_rows_of_states(tmp_path: Path, suffix: str):
    data = import_arrays(write(tmp_path / f"in{suffix}", STATES), tmp_path / "out")
    check_dataset(data)
    assert data.lengths.tolist() == [2, 1]
    batch = data.transitions()
    assert np.allclose(batch.action.ravel(), [0.1, 0.2, 0.3])
    assert batch.next_obs.ravel().tolist() == [1, 2, 6]
    assert not batch.terminated.any()
    assert data.columns["qpos"].ravel().tolist() == [0, 1, 2, 3, 4]


def without(arrays, *names):
    return {name: values for name, values in arrays.items() if name not in names}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (without(TRANSITIONS, "actions"), "lacks 'action' .* it has observations"),
        (without(STATES, "terminals"), "neither next_obs nor a flag"),
        (TRANSITIONS | {"rewards": np.zeros(9)}, "reward has shape"),
        (STATES | {"qpos": np.zeros((9, 1))}, "'qpos' of .* has shape"),
        (TRANSITIONS | {"actions": np.full((3, 1), np.nan)}, "action has NaN"),
        (TRANSITIONS | {"obs": np.zeros((3, 1))}, "also means 'obs'"),
        (STATES | {"terminals": np.array([1, 0, 1, 0, 1])}, "episode 0 is a single state"),
        (STATES | {"actions": np.zeros(5)}, "action has shape"),
        (STATES | {"actions": np.full((5, 1), 2.0)}, "action reaches 2 in column 0"),
        (STATES | {"notes": np.array(list("abcde"))}, "only numbers and booleans"),
        (STATES | {"starts": np.zeros((2, 3))}, "resets have 3 columns, obs has 1"),
        ({name: values[:0] for name, values in STATES.items()}, "is empty"),
        (STATES | {"observations": np.float64(3)}, "is empty"),
        (TRANSITIONS | {"notes": np.array(["a", "b", "c"])}, "only numbers and booleans"),
    ],
)
def test_bad_arrays_are_one_sentence(tmp_path: Path, arrays, words: str):
    with pytest.raises(DataError, match=words) as caught:
        import_arrays(write(tmp_path / "in.npz", arrays), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in.npz"]


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_cut_files_are_named(tmp_path: Path, suffix: str):
    path = write(tmp_path / f"in{suffix}", TRANSITIONS)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match="is not a whole"):
        import_arrays(path, tmp_path / "out")
    with pytest.raises(DataError, match="does not exist"):
        import_arrays(tmp_path / f"nowhere{suffix}", tmp_path / "out")


def test_pickled_arrays_are_refused(tmp_path: Path):
    path = tmp_path / "in.npz"
    np.savez(path, obs=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="objects are refused"):
        import_arrays(path, tmp_path / "out")
