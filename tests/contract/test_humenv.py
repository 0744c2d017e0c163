"""HumEnv's protocols and files, and how its package is told from a stranger's; no robot is needed."""

import importlib.machinery
import sys
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
import torch

from zol.common.errors import DataError, WorldError
from zol.data.sources.humenv import read_buffer, read_motions
from zol.tasks import humenv
from zol.tasks.humenv_metrics import earth_movers_distance, goal_scores, proximity, tracking_scores
from zol.worlds import humenv as world
from zol.worlds import make

D, Q, V, A = 358, 76, 75, 69


def install(monkeypatch, folder, name="humenv"):
    """A package of that name, importable from ``folder`` and nowhere else."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a stranger\\'s code ran')\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()
    return package


@pytest.fixture(autouse=True)
def no_real_package(monkeypatch):
    """These tests are about absent and false packages, whatever is installed here."""
    real = find_spec

    def find(name):
        spec = real(name)
        local = spec is not None and "pytest" in str(spec.origin)
        return spec if local else None

    monkeypatch.setattr(world, "find_spec", find)


def test_without_the_package_the_error_says_where_it_is():
    with pytest.raises(WorldError, match=r"not on PyPI.*github\.com/facebookresearch/humenv"):
        make("humenv")


def test_a_squatted_name_is_refused_without_running_its_code(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)
    with pytest.raises(WorldError, match=r"not Meta's HumEnv.*pip uninstall humenv"):
        make("humenv")
    assert "humenv" not in sys.modules


@pytest.mark.parametrize(
    "robot", ["<mujoco/>", "<mujoco><worldbody><body name='Pelvis'/></worldbody></mujoco>", "no"]
)
def test_another_robot_is_refused(monkeypatch, tmp_path, robot):
    package = install(monkeypatch, tmp_path)
    (package / "assets").mkdir()
    (package / "assets" / "robot.xml").write_text(robot)
    with pytest.raises(WorldError, match=r"not HumEnv's robot|not a MuJoCo model"):
        make("humenv")
    assert "humenv" not in sys.modules


def test_goal_scores():
    goal = torch.zeros(D)
    visited = torch.zeros(2, 4, D)
    visited[0, :, 0] = torch.tensor([1.0, 3.0, 4.0, 9.0])  # distances
    visited[1, :, 5] = 2.5
    visited[:, :, humenv.POSE :] = 100.0  # velocities do not count
    scores = goal_scores(visited, goal)
    assert scores["success"].tolist() == [1.0, 0.0]
    torch.testing.assert_close(scores["distance"], torch.tensor([17 / 4, 2.5]))
    torch.testing.assert_close(scores["proximity"], torch.tensor([1.5 / 4, 0.75]))
    assert proximity(torch.tensor([2.0, 4.0])).tolist() == [1.0, 0.0]


def test_tracking_scores():
    generator = torch.Generator().manual_seed(0)
    motion = torch.randn(30, D, generator=generator)
    perfect = tracking_scores(motion, motion)
    assert {k: float(v) for k, v in perfect.items()} == {
        "success": 1.0,
        "proximity": 1.0,
        "distance": 0.0,
        "emd": 0.0,
        "success_every_joint": 1.0,
        "success_mean_joint": 1.0,
    }
    backwards = tracking_scores(motion.flip(0), motion)
    assert float(backwards["emd"]) == 0.0  # the same poses, in another order
    assert float(backwards["success"]) == 0.0
    with pytest.raises(DataError, match="cannot be compared"):
        tracking_scores(motion[1:], motion)


def test_earth_movers_distance_on_the_line():
    """In one dimension optimal transport joins quantiles."""
    rng = np.random.default_rng(0)
    for n, m in ((7, 7), (4, 6), (3, 9)):
        x, y = rng.standard_normal(n), rng.standard_normal(m)
        rows = np.lcm(n, m)
        expected = np.abs(np.repeat(np.sort(x), rows // n) - np.repeat(np.sort(y), rows // m)).mean()
        got = earth_movers_distance(torch.tensor(x)[:, None], torch.tensor(y)[:, None])
        assert float(got) == pytest.approx(expected, abs=1e-12)


def buffer(path, n=20, drop=()):
    rng = np.random.default_rng(1)
    sizes = {
        "observation": D,
        "next_observation": D,
        "action": A,
        "qpos": Q,
        "qvel": V,
        "next_qpos": Q,
        "next_qvel": V,
    }
    with h5py.File(path, "w") as file:
        for name, size in sizes.items():
            if name not in drop:
                values = rng.standard_normal((n, size))
                file[name] = (np.tanh(values) if name == "action" else values).astype(np.float32)
    return path


def test_inference_buffer(tmp_path):
    path = buffer(tmp_path / "b.hdf5")
    whole = read_buffer(path, resets=torch.zeros(3, D))
    assert len(whole) == 20
    assert whole.starts().shape == (3, D)
    batch = whole.transitions()
    with h5py.File(path) as file:
        np.testing.assert_array_equal(batch.next_obs.numpy(), file["next_observation"][:])
        after = np.concatenate([file["next_qpos"][:], file["next_qvel"][:]], axis=1)
    assert batch.next_physics is not None
    np.testing.assert_array_equal(batch.next_physics.float().numpy(), after)
    part = read_buffer(path, rows=5, seed=3)
    assert len(part) == 5
    assert part.fingerprint() == read_buffer(path, rows=5, seed=3).fingerprint()
    slim = read_buffer(buffer(tmp_path / "slim.hdf5", drop=("observation", "qpos", "qvel")))
    assert len(slim) == 20
    with pytest.raises(DataError, match="lacks next_qpos"):
        read_buffer(buffer(tmp_path / "c.hdf5", drop=("next_qpos",)))
    (tmp_path / "d.hdf5").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a whole HDF5"):
        read_buffer(tmp_path / "d.hdf5")


def test_motions(tmp_path):
    with h5py.File(tmp_path / "m.hdf5", "w") as file:
        for i in (0, 1, 10):
            group = file.create_group(f"ep_{i}")
            group["observation"] = np.full((4, D), i, dtype=np.float64)
            group["qpos"], group["qvel"] = np.zeros((4, Q), np.float32), np.zeros((4, V), np.float32)
    motions = read_motions(tmp_path / "m.hdf5")
    assert [m.name for m in motions] == ["m/ep_0", "m/ep_1", "m/ep_10"]
    assert motions[2].obs.shape == (4, D)
    assert motions[2].physics.shape == (4, Q + V)
    with h5py.File(tmp_path / "e.hdf5", "w"):
        pass
    with pytest.raises(DataError, match="ep_0"):
        read_motions(tmp_path / "e.hdf5")
