"""Replaying stored actions, on worlds whose answer is known."""

from pathlib import Path

import numpy as np
import pytest

from zol.collect.explore import ExploreConfig, explore
from zol.collect.resimulate import resimulate
from zol.common.errors import DataError
from zol.data import Dataset
from zol.testing import check_dataset
from zol.worlds.donut import Donut


class WindyDonut(Donut):
    """Another simulator: every step drifts to the right by a hundredth."""

    def step(self, action):
        states = super().step(action)
        assert states.physics is not None
        shifted = states.physics.clone()
        shifted[:, 0] += 0.01
        return self.set_physics(shifted)


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return explore(Donut(), tmp_path / "data", ExploreConfig(steps=700, envs=4, how="random", resets=16))


def test_the_same_simulator_drifts_nowhere(tmp_path: Path, data: Dataset):
    again, drift = resimulate(data, Donut(), tmp_path / "again", batch=3)
    check_dataset(again)
    assert again.fingerprint() == data.fingerprint()
    assert drift.steps == (1, 10, 100)
    assert drift.maximum == (0.0, 0.0, 0.0)
    assert again.provenance["original"]["source"] == "explore"
    assert again.provenance["versions"]["zol"]


def test_another_simulator_is_measured(tmp_path: Path, data: Dataset):
    again, drift = resimulate(data, WindyDonut(), tmp_path / "again")
    assert drift.median[0] == pytest.approx(0.01, abs=1e-6)
    assert drift.median[2] > drift.median[0]
    assert "after    1 steps: median 1.00e-02" in drift.lines()[0]
    assert np.array_equal(again.columns["action"], data.columns["action"])
    assert np.array_equal(again.starts(), data.starts())
    assert again.fingerprint() != data.fingerprint()


def test_unequal_lengths_keep_their_order(tmp_path: Path):
    rng = np.random.default_rng(0)
    source = Dataset.from_arrays(
        obs := np.full((9, 2), 0.5),
        rng.uniform(-1, 1, (9, 2)),
        obs,
        truncated=[0, 1, 0, 0, 1, 0, 1, 1, 1],
        physics=obs,
        next_physics=obs,
    )
    again, _ = resimulate(source, Donut(), tmp_path / "again")
    assert again.lengths.tolist() == source.lengths.tolist()
    assert np.array_equal(again.columns["action"], source.columns["action"])


def test_refusals(tmp_path: Path, data: Dataset):
    bare = Dataset.from_arrays([[0.0, 0.5]], [[0.0, 0.0]], [[0.0, 0.5]])
    with pytest.raises(DataError, match="stores no simulator states"):
        resimulate(bare, Donut(), tmp_path / "again")
    other = Dataset.from_arrays([[0.5]], [[0.0]], [[0.5]], physics=[[0.5]], next_physics=[[0.5]])
    with pytest.raises(DataError, match="donut has 2 and 2"):
        resimulate(other, Donut(), tmp_path / "again")
    assert not (tmp_path / "again").exists()
