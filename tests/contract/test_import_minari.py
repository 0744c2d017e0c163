"""Minari datasets, made by Minari itself in a temporary folder."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from zol.common.errors import DataError
from zol.data.sources.minari import export_minari, import_minari
from zol.testing import check_dataset

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def make(name: str, observation_space, observe, action_space) -> None:
    from minari.data_collector import EpisodeBuffer

    rng = np.random.default_rng(0)
    buffers = [
        EpisodeBuffer(
            observations=observe(rng, steps + 1),
            actions=np.stack([action_space.sample() for _ in range(steps)]),
            rewards=list(range(steps)),
            terminations=[False] * (steps - 1) + [steps == 3],
            truncations=[False] * (steps - 1) + [steps != 3],
        )
        for steps in (3, 5)
    ]
    minari.create_dataset_from_buffers(
        dataset_id=name, buffer=buffers, observation_space=observation_space, action_space=action_space
    )


def test_read(tmp_path: Path):
    from gymnasium.spaces import Box

    space = Box(-2.0, 2.0, (2,), np.float32, seed=0)
    make(
        "toy/plain-v0",
        Box(-9, 9, (4,), np.float32),
        lambda g, n: g.uniform(-1, 1, (n, 4)).astype("f4"),
        space,
    )
    data = import_minari("toy/plain-v0", tmp_path / "out")
    check_dataset(data)
    assert data.lengths.tolist() == [3, 5]
    assert data.columns["terminated"].nonzero()[0].tolist() == [2]
    stored = list(minari.load_dataset("toy/plain-v0").iterate_episodes())
    assert np.array_equal(data.episode(1)["obs"], stored[1].observations)
    assert np.allclose(data.episode(1)["action"][:5], stored[1].actions / 2)  # bounds ±2 become ±1
    assert data.episode(0)["reward"].tolist() == [0, 1, 2, 0]


def test_actions_beyond_their_bounds_are_clipped_and_unbounded_ones_must_be_scaled(tmp_path: Path):
    from gymnasium.spaces import Box

    class Loose(Box):
        """Data recorded before the simulator's clipping."""

        def sample(self, mask=None, probability=None):
            return np.array([3.0, -0.5], np.float32)

        def contains(self, x):
            return True

    observed = Box(-9, 9, (4,), np.float32)
    make("toy/loose-v0", observed, lambda g, n: g.uniform(-1, 1, (n, 4)).astype("f4"), Loose(-1, 1, (2,)))
    data = import_minari("toy/loose-v0", tmp_path / "loose")
    assert data.episode(0)["action"][0].tolist() == [1.0, -0.5]
    free = Loose(-np.inf, np.inf, (2,), np.float32)
    make("toy/free-v0", observed, lambda g, n: g.uniform(-1, 1, (n, 4)).astype("f4"), free)
    with pytest.raises(DataError, match=r"action reaches 3 in column 0; expected \[-1, 1\]"):
        import_minari("toy/free-v0", tmp_path / "free")
    assert not (tmp_path / "free").exists()


def test_dictionary_observations_are_joined(tmp_path: Path):
    from gymnasium.spaces import Box, Dict

    parts = {"goal": Box(-9, 9, (2,), np.float32), "achieved": Box(-9, 9, (1,), np.float32)}

    def observe(rng, n):
        return {key: rng.uniform(-1, 1, (n, *box.shape)).astype("f4") for key, box in parts.items()}

    make("toy/dict-v0", Dict(list(parts.items())), observe, Box(-1, 1, (2,), np.float32, seed=0))
    assert import_minari("toy/dict-v0", tmp_path / "out").obs_dim == 3


def test_written_and_read_again(tmp_path: Path):
    from gymnasium.spaces import Box

    box = Box(-1.0, 1.0, (2,), np.float32, seed=0)
    make(
        "toy/plain-v0", Box(-9, 9, (4,), np.float32), lambda g, n: g.uniform(-1, 1, (n, 4)).astype("f4"), box
    )
    data = import_minari("toy/plain-v0", tmp_path / "one")
    export_minari(data, "toy/again-v0")
    assert import_minari("toy/again-v0", tmp_path / "two").fingerprint() == data.fingerprint()


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from gymnasium.spaces import Box, Discrete

    with pytest.raises(DataError, match="minari download toy/none-v0"):
        import_minari("toy/none-v0", tmp_path / "out")

    def unreachable(*args: object, **settings: object) -> None:
        raise type("ConnectError", (Exception,), {})("Name or service not known")

    monkeypatch.setattr("minari.storage.hosting.download_dataset", unreachable)
    with pytest.raises(DataError, match=r"cannot download 'toy/none-v0' \(Name or service not known\)"):
        import_minari("toy/none-v0", tmp_path / "out", fetch=True)
    space = Discrete(3, seed=0)
    make("toy/discrete-v0", Box(-9, 9, (4,), np.float32), lambda g, n: np.ones((n, 4), "f4"), space)
    with pytest.raises(DataError, match="continuous actions"):
        import_minari("toy/discrete-v0", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a set that Minari must not open: what is wrong with it is found before."""
    from gymnasium.spaces import Box

    observed, action = Box(-9, 9, (4,), np.float32), Box(-1, 1, (2,), np.float32, seed=0)
    make("toy/odd-v0", observed, lambda g, n: g.uniform(-1, 1, (n, 4)).astype("f4"), action)

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("Minari opened it")

    monkeypatch.setattr(minari, "load_dataset", opened)
    return tmp_path / "minari" / "toy" / "odd-v0" / "data"


def refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(DataError, match=what):
        import_minari("toy/odd-v0", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", ["external", "virtual", "link", "other file", "deep", "itself"])
def test_data_in_other_files_are_refused_before_minari_reads_them(
    tmp_path: Path, folder: Path, how: str
) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(64)))
    other = tmp_path / "other.hdf5"
    with h5py.File(other, "w") as file:
        file["x"] = np.zeros((4, 4), np.float32)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        episode = file["episode_0"]
        assert isinstance(episode, h5py.Group)
        del episode["observations"]
        if how == "external":
            places = [(str(tmp_path / "secret"), 0, 64)]
            episode.create_dataset("observations", (4, 4), "f4", external=places)
        elif how == "virtual":
            layout = h5py.VirtualLayout((4, 4), "f4")
            layout[:] = h5py.VirtualSource(str(other), "x", (4, 4))
            episode.create_virtual_dataset("observations", layout)
        elif how == "link":
            episode["observations"] = h5py.SoftLink("/episode_1/observations")
        elif how == "other file":
            episode["observations"] = h5py.ExternalLink(str(other), "x")
        elif how == "deep":
            group = episode.create_group("infos/a/b")
            group.create_dataset("x", (16,), "f4", external=[(str(tmp_path / "secret"), 0, 64)])
        else:
            episode["infos/again"] = episode
    words = {"link": "is a link", "other file": "is a link", "itself": "within itself"}
    refused(tmp_path, words.get(how, "bytes from other files"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"observation_space": None}, "no observation_space"),
        ({"action_space": None}, "no action_space"),
        ({"total_episodes": 10**9}, "total_episodes 1000000000; expected a number from 1 to 2"),
        ({"total_episodes": "2"}, "total_episodes '2'"),
        ({"action_space": '{"type": "Box", "shape": [10000000000], "low": 0, "high": 1}'}, "has shape"),
        ({"action_space": "[" * 1000}, "not valid JSON"),
    ],
)
def test_facts_that_would_run_code_or_fill_the_memory_are_refused(
    tmp_path: Path, folder: Path, change: dict[str, Any], what: str
) -> None:
    facts = json.loads((folder / "metadata.json").read_text())
    # Minari makes this "environment" where a space is missing.
    spec = {"id": "Odd-v0", "entry_point": "pathlib:Path.touch", "kwargs": {"self": str(tmp_path / "ran")}}
    facts |= {"env_spec": json.dumps(spec)} | change
    (folder / "metadata.json").write_text(json.dumps({k: v for k, v in facts.items() if v is not None}))
    refused(tmp_path, what)
    assert not (tmp_path / "ran").exists()


def test_an_episode_that_minari_cannot_read_is_a_sentence(tmp_path: Path) -> None:
    test_read(tmp_path)
    with h5py.File(tmp_path / "minari" / "toy" / "plain-v0" / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
    with pytest.raises(DataError, match=r"an episode of the Minari dataset 'toy/plain-v0' cannot be read"):
        import_minari("toy/plain-v0", tmp_path / "again")
    assert not (tmp_path / "again").exists()
