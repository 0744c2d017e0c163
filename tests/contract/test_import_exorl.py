"""ExORL files, written here exactly as ExORL writes them."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from zol.common.errors import DataError
from zol.data import Dataset
from zol.data.sources.exorl import find_local, import_exorl, parse
from zol.testing import check_dataset


def episode(steps=3, number=0, rewards=1, physics=4):
    """T + 1 rows; row 0 is a dummy, and the action in row t led to observation t."""
    rng = np.random.default_rng(number)
    action = rng.uniform(-1, 1, (steps + 1, 2)).astype(np.float32)
    reward = rng.uniform(0, 1, (steps + 1, rewards)).astype(np.float32)
    action[0], reward[0] = 0, 0
    return {
        "observation": rng.standard_normal((steps + 1, 4)).astype(np.float32),
        "action": action,
        "reward": reward,
        "discount": np.ones((steps + 1, 1), np.float32),
        "physics": rng.standard_normal((steps + 1, physics)),
    }


def write_folder(path: Path, count=12, **options) -> Path:
    buffer = path / "buffer"
    buffer.mkdir(parents=True)
    for number in range(count):
        np.savez_compressed(buffer / f"episode_{number:06d}_3.npz", **episode(number=number, **options))
    return path


def write_zip(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted(folder.rglob("*.npz"), reverse=True):  # archives promise no order
            packed.write(file, file.relative_to(folder))
        packed.writestr("video/0.mp4", b"not an episode")
    return path


def test_actions_move_to_the_state_they_were_taken_in(tmp_path: Path):
    data = import_exorl(write_folder(tmp_path / "in", count=1), tmp_path / "out", world="point_mass_maze")
    check_dataset(data)
    given = episode()
    batch = data.transitions()
    for t in (1, 2, 3):  # transition t of ExORL: (obs[t-1], action[t], reward[t], obs[t])
        assert np.array_equal(batch.obs[t - 1], given["observation"][t - 1])
        assert np.array_equal(batch.action[t - 1], given["action"][t])
        assert np.array_equal(batch.next_obs[t - 1], given["observation"][t])
        assert batch.next_physics is not None
        assert np.array_equal(batch.next_physics[t - 1], given["physics"][t])
        assert data.columns["reward"][t - 1] == given["reward"][t, 0]
    assert not batch.terminated.any()
    assert data.provenance["world"] == "point_mass_maze"
    assert data.provenance["variant"] == "exorl-raw"
    assert data.columns["physics"].dtype == np.float64


def test_numerical_order_from_folder_and_zip(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in (10, 9, 100, 1):  # as text: 1, 10, 100, 9
        np.savez(folder / f"episode_{number}_3.npz", **episode(number=number))
    one = import_exorl(folder, tmp_path / "one")
    two = import_exorl(write_zip(tmp_path / "rnd.zip", folder), tmp_path / "two")
    assert one.fingerprint() == two.fingerprint()
    for place, number in enumerate((1, 9, 10, 100)):
        assert np.array_equal(one.episode(place)["obs"], episode(number=number)["observation"])
    assert import_exorl(folder, tmp_path / "few", episodes=2).episodes == 2


def test_four_rewards_of_the_maze_are_kept(tmp_path: Path):
    data = import_exorl(write_folder(tmp_path / "in", count=2, rewards=4), tmp_path / "out")
    assert data.columns["reward"].shape == (8, 4)
    assert np.array_equal(data.episode(1)["reward"][:3], episode(number=1, rewards=4)["reward"][1:])


def test_a_zero_discount_at_the_end_is_terminal(tmp_path: Path):
    arrays = episode()
    arrays["discount"][-1] = 0
    np.savez(tmp_path / "episode_0_3.npz", **arrays)
    assert import_exorl(tmp_path, tmp_path / "out").transitions().terminated.tolist() == [False, False, True]


def drop(key):
    return lambda arrays: arrays.pop(key)


def shorten(key):
    return lambda arrays: arrays.update({key: arrays[key][:-1]})


def poison(key):
    return lambda arrays: arrays[key].__setitem__((1, 0), np.nan)


def end_early(arrays):
    arrays["discount"][1] = 0


def pickled(arrays):
    arrays["observation"] = np.array([{}, {}, {}, {}], dtype=object)


def flat(arrays):
    arrays["observation"] = arrays["observation"][:, 0]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (drop("action"), "lacks 'action'; it has discount, observation"),
        (shorten("physics"), "'physics' of .* has shape .* 3 steps need 4 rows"),
        (poison("observation"), "obs has NaN or infinite values in 1 rows, first in row 1"),
        (poison("physics"), "'physics' of episode 3 has NaN"),
        (end_early, "is terminated at step 0 but goes on"),
        (pickled, "damaged or cut short"),
        (flat, "expected two dimensions"),
    ],
)
def test_bad_episodes_are_one_sentence_and_leave_nothing(tmp_path: Path, harm, words):
    folder = write_folder(tmp_path / "in")
    arrays = episode(number=3)
    harm(arrays)
    np.savez(folder / "buffer" / "episode_000003_3.npz", **arrays)
    with pytest.raises(DataError, match=words) as caught:
        import_exorl(folder, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_truncated_files_are_named(tmp_path: Path):
    folder = write_folder(tmp_path / "in")
    packed = write_zip(tmp_path / "rnd.zip", folder)
    file = folder / "buffer" / "episode_000007_3.npz"
    file.write_bytes(file.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"episode_000007_3\.npz in .* damaged or cut short"):
        import_exorl(folder, tmp_path / "out")
    for lost in (60, packed.stat().st_size - 60):  # the cut zip may end in the directory of an inner npz
        packed.write_bytes(packed.read_bytes()[:-lost])
        with pytest.raises(DataError, match="stopped early"):
            import_exorl(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_refusals(tmp_path: Path):
    with pytest.raises(DataError, match="does not exist"):
        import_exorl(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(DataError, match="holds no files called episode_"):
        import_exorl(tmp_path, tmp_path / "out")
    folder = write_folder(tmp_path / "in", count=2)
    with pytest.raises(DataError, match="holds 2 episodes, 5 were asked for"):
        import_exorl(folder, tmp_path / "out", episodes=5)
    np.savez(folder / "episode_0_3.npz", **episode())
    with pytest.raises(DataError, match="two files for episode 0"):
        import_exorl(folder, tmp_path / "out")


def test_names(tmp_path: Path):
    assert parse("exorl/walker/rnd") == ("walker", "rnd")
    with pytest.raises(DataError, match="did you mean 'walker'"):
        parse("exorl/walkr/rnd")
    with pytest.raises(DataError, match="did you mean 'rnd'"):
        parse("exorl/walker/rdn")
    with pytest.raises(DataError, match="exorl/<domain>/<algorithm>"):
        parse("exorl/walker")
    (tmp_path / "walker").mkdir()
    (tmp_path / "walker" / "rnd.zip").touch()
    assert find_local(tmp_path, "walker", "rnd") == tmp_path / "walker" / "rnd.zip"
    with pytest.raises(DataError, match="no walker/proto in"):
        find_local(tmp_path, "walker", "proto")


def test_opened_again(tmp_path: Path):
    data = import_exorl(write_folder(tmp_path / "in"), tmp_path / "out")
    assert Dataset.open(tmp_path / "out").fingerprint() == data.fingerprint()
