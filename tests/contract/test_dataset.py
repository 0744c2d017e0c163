"""Datasets in memory and on disk: the row layout, the format, sampling, fingerprints."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zol.common.errors import DataError
from zol.data import Dataset, DatasetWriter, disk
from zol.data.merging import merge
from zol.testing import check_dataset


def two_episodes(**more) -> Dataset:
    """Episodes of 3 and 2 steps, the first terminated, with everything a dataset can hold."""
    obs = np.array([[0.0], [1.0], [2.0], [10.0], [11.0]])
    next_obs = np.array([[1.0], [2.0], [3.0], [11.0], [12.0]])
    return Dataset.from_arrays(
        obs,
        np.array([[0.1], [0.2], [0.3], [0.4], [0.5]]),
        next_obs,
        terminated=[0, 0, 1, 0, 0],
        physics=obs * 2,
        next_physics=next_obs * 2,
        reward=np.arange(5),
        resets=[[0.0], [10.0], [20.0]],
        provenance={"world": "toy"},
        **more,
    )


def random_set(lengths, seed=0, obs_dim=3) -> Dataset:
    rng = np.random.default_rng(seed)
    rows = sum(lengths) + len(lengths)
    last = np.cumsum(np.array(lengths) + 1) - 2
    columns = {
        "obs": rng.standard_normal((rows, obs_dim), dtype=np.float32),
        "action": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "terminated": np.zeros(rows, bool),
        "truncated": np.zeros(rows, bool),
        "physics": rng.standard_normal((rows, 2)),
    }
    columns["truncated"][last] = True
    columns["action"][last + 1] = 0
    return Dataset(columns, np.array(lengths, dtype=np.int64))


def test_rows_hold_each_state_once():
    data = two_episodes()
    assert data.lengths.tolist() == [3, 2]
    assert data.columns["obs"].ravel().tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert data.columns["terminated"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert data.columns["truncated"].tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert data.columns["physics"].ravel().tolist() == [0, 2, 4, 6, 20, 22, 24]
    assert data.columns["reward"].tolist() == [0, 1, 2, 0, 3, 4, 0]
    batch = data.transitions()
    assert batch.next_obs.ravel().tolist() == [1, 2, 3, 11, 12]
    assert batch.terminated.tolist() == [False, False, True, False, False]
    assert batch.next_physics is not None
    assert batch.next_physics.ravel().tolist() == [2, 4, 6, 22, 24]
    assert data.starts().ravel().tolist() == [0, 10, 20]


def test_without_resets_every_first_state_is_a_start():
    data = random_set([3, 1, 4])
    assert torch.equal(data.starts(), torch.from_numpy(data.columns["obs"][[0, 4, 6]]))


def test_saved_and_opened_is_the_same(tmp_path: Path):
    data = two_episodes()
    stored = data.save(tmp_path / "set")
    check_dataset(data)
    check_dataset(stored)
    assert stored.fingerprint() == data.fingerprint()
    assert stored.provenance == {"world": "toy"}
    for name, column in data.columns.items():
        assert stored.columns[name].dtype == disk.canonical(name, column).dtype
        assert np.array_equal(stored.columns[name], column)
    one, two = (
        data.sample(50, torch.Generator().manual_seed(1)),
        stored.sample(50, torch.Generator().manual_seed(1)),
    )
    assert torch.equal(one.obs, two.obs)
    assert one.next_physics is not None
    assert two.next_physics is not None
    assert torch.equal(one.next_physics, two.next_physics)
    assert stored.sample(5, torch.Generator(), physics=False).next_physics is None


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_every_step_finds_its_row(lengths):
    data = random_set(lengths)
    expected = np.concatenate(
        [first + np.arange(n) for first, n in zip(data.first_rows, lengths, strict=True)]
    )
    assert np.array_equal(data.rows(np.arange(len(data))), expected)


def test_rows_read_singly_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = random_set([5, 3, 7])
    data.save(tmp_path / "set")
    monkeypatch.setattr(disk, "RESIDENT_BUDGET", 0)
    stored = Dataset.open(tmp_path / "set")
    ours, theirs = data.transitions(), stored.transitions()
    for name in ("obs", "action", "next_obs", "terminated", "next_physics"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name))


def test_fingerprint_sees_every_part():
    prints = {two_episodes().fingerprint(), two_episodes().fingerprint()}
    assert len(prints) == 1
    base = two_episodes()
    for name in base.columns:
        changed = {k: v.copy() for k, v in base.columns.items()}
        changed[name][1] = 1 - changed[name][1]
        prints.add(Dataset(changed, base.lengths, resets=base.resets).fingerprint())
    prints.add(Dataset(base.columns, base.lengths).fingerprint())  # other start states
    prints.add(Dataset(base.columns, np.array([2, 3]), resets=base.resets).fingerprint())
    assert len(prints) == 1 + len(base.columns) + 2


def test_subset_of_episodes(tmp_path: Path):
    data = random_set([5, 3, 7])
    part = data.save(tmp_path / "part", which=np.array([2, 0]))
    assert part.lengths.tolist() == [7, 5]
    assert np.array_equal(part.episode(0)["obs"], data.episode(2)["obs"])


def test_merged_sets_keep_every_episode_and_say_where_it_is_from(tmp_path: Path):
    """Columns that one set lacks are left out; terminal states stay terminal; resets of both count."""
    first, drawn = two_episodes(), random_set([4, 2], obs_dim=1)
    columns = {name: column[:, :1] if name == "action" else column for name, column in drawn.columns.items()}
    del columns["physics"]
    second = Dataset(columns, drawn.lengths, {"world": "toy", "how": "practice"})
    whole, left = merge([first, second], tmp_path / "both")
    assert left == ["physics", "reward"]
    assert whole.lengths.tolist() == [3, 2, 4, 2]
    for number, (one, own) in enumerate([(first, 0), (first, 1), (second, 0), (second, 1)]):
        for name, rows in whole.episode(number).items():
            np.testing.assert_array_equal(rows, one.episode(own)[name])
    assert whole.resets is None  # the second has none, so episodes' first states are the starts of both
    assert [part.get("how") for part in whole.provenance["parts"]] == [None, "practice"]
    assert whole.provenance["parts"][0]["fingerprint"] == first.fingerprint()
    doubled, left = merge([first, first], tmp_path / "doubled")
    assert not left
    assert doubled.resets is not None
    assert len(doubled.resets) == 2 * 3


def test_sets_of_two_worlds_are_not_merged(tmp_path: Path):
    toy, other = two_episodes(), replace(two_episodes(), provenance={"world": "walker"})
    with pytest.raises(DataError, match="same world, these have toy, walker"):
        merge([toy, other], tmp_path / "both")
    with pytest.raises(DataError, match="same shape of 'obs'"):
        merge([toy, replace(random_set([3], obs_dim=2), provenance={"world": "toy"})], tmp_path / "both")
    with pytest.raises(DataError, match="two sets or more"):
        merge([toy], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_appending_goes_on(tmp_path: Path):
    data = random_set([5, 3, 7])
    for number in range(3):
        with DatasetWriter(tmp_path / "set") as writer:
            assert writer.episodes == number
            writer.append_rows([data.episode(number)])
    assert Dataset.open(tmp_path / "set").fingerprint() == data.fingerprint()


def test_an_open_set_does_not_move_while_it_grows(tmp_path: Path):
    data = random_set([5, 3])
    with DatasetWriter(tmp_path / "set") as writer:
        writer.append_rows([data.episode(0)])
        early = Dataset.open(tmp_path / "set")
        writer.append_rows([data.episode(1)])
        assert len(early) == 5
        assert len(Dataset.open(tmp_path / "set")) == 8


def test_batch_of_episodes(tmp_path: Path):
    rng = np.random.default_rng(0)
    obs, action = rng.standard_normal((4, 6, 3)), rng.uniform(-1, 1, (4, 5, 2))
    with DatasetWriter(tmp_path / "set", resets=obs[:, 0], provenance={"seed": 0}) as writer:
        writer.append_batch(obs, action, physics=obs, reward=rng.standard_normal((4, 5)))
        writer.set_provenance(coverage=3)
    data = Dataset.open(tmp_path / "set")
    check_dataset(data)
    assert data.lengths.tolist() == [5] * 4
    assert data.provenance == {"seed": 0, "coverage": 3}
    assert data.columns["physics"].dtype == np.float64


def bad_nan():
    Dataset.from_arrays([[np.nan]], [[0.0]], [[1.0]])


def bad_shape():
    Dataset.from_arrays([[1.0], [2.0]], [[0.0]], [[1.0], [2.0]])


def bad_dims():
    Dataset.from_arrays([1.0], [[0.0]], [[1.0]])


def bad_type():
    Dataset.from_arrays([["a"]], [[0.0]], [[1.0]])


def bad_flags():
    Dataset.from_arrays([[1.0]], [[0.0]], [[1.0]], terminated=[0, 1])


def bad_scale():
    Dataset.from_arrays([[1.0], [1.0]], [[0.5, 0.0], [0.0, -40.0]], [[1.0], [2.0]])


def bad_extra():
    Dataset.from_arrays([[1.0]], [[0.0]], [[1.0]], reward=[1.0, 2.0])


def bad_extra_name():
    Dataset.from_arrays([[1.0]], [[0.0]], [[1.0]], **dict[str, Any]({"../x": [1.0]}))


def bad_resets():
    Dataset.from_arrays([[1.0]], [[0.0]], [[1.0]], resets=[[1.0, 2.0]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (bad_nan, "NaN or infinite values in 1 rows, first in row 0"),
        (bad_shape, "do not belong together"),
        (bad_dims, "expected two dimensions"),
        (bad_type, "expected numbers"),
        (bad_scale, "action reaches 40 in column 1; expected"),
        (bad_flags, "terminated has 2 entries, obs has 1"),
        (bad_extra, "reward has shape"),
        (bad_extra_name, "cannot name a column"),
        (bad_resets, "resets have 2 columns, obs has 1"),
        (lambda: Dataset.open("/nowhere"), "not a zol dataset"),
    ],
)
def test_bad_input_is_one_sentence(make, words):
    with pytest.raises(DataError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_set_is_written_whole_or_not_at_all(tmp_path: Path):
    data = random_set([5, 3])
    broken = dict(data.columns)
    broken["obs"] = broken["obs"].copy()
    broken["obs"][-1, 0] = np.inf
    with pytest.raises(DataError, match="'obs' of episode 1 has NaN or infinite"):
        Dataset(broken, data.lengths).save(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []
    data.save(tmp_path / "set")
    with pytest.raises(DataError, match="already exists"):
        data.save(tmp_path / "set")


def test_an_episode_that_does_not_fit_changes_nothing(tmp_path: Path):
    data = random_set([5, 3])
    with DatasetWriter(tmp_path / "set") as writer:
        writer.append_rows([data.episode(0)])
        with pytest.raises(DataError, match="has the columns"):
            writer.append_episode(np.zeros((3, 3)), np.zeros((2, 2)))
        with pytest.raises(DataError, match="has shape"):
            writer.append_rows([random_set([4], obs_dim=9).episode(0)])
        with pytest.raises(DataError, match=r"L \+ 1 states"):
            writer.append_episode(np.zeros((3, 3)), np.zeros((3, 2)))
        writer.append_rows([data.episode(1)])
    assert Dataset.open(tmp_path / "set").fingerprint() == data.fingerprint()


def test_damaged_files_are_named(tmp_path: Path):
    path = tmp_path / "set"
    random_set([5, 3]).save(path)
    column = (path / "obs.bin").read_bytes()
    (path / "obs.bin").write_bytes(column[:-4])
    with pytest.raises(DataError, match=r"obs\.bin has 116 bytes, its set promises 120"):
        Dataset.open(path)
    (path / "obs.bin").write_bytes(column)
    index = bytearray((path / "episodes.bin").read_bytes())
    index[0] ^= 1
    (path / "episodes.bin").write_bytes(index)
    with pytest.raises(DataError, match="damaged at episode 0"):
        Dataset.open(path)
    header = json.loads((path / "dataset.json").read_text())
    (path / "dataset.json").write_text(json.dumps(header | {"version": 99}))
    with pytest.raises(DataError, match="version 99"):
        Dataset.open(path)
    (path / "dataset.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        Dataset.open(path)


def test_a_stored_set_can_be_compared_with_its_digests(tmp_path):
    obs = np.arange(12, dtype=np.float32)[:, None]
    data = Dataset.from_arrays(obs[:-1], np.zeros((11, 1)), obs[1:], resets=obs[:3])
    with pytest.raises(DataError, match="only a set on disk"):
        data.verify()
    data.save(tmp_path / "set").verify()
    for name, message in (("resets.bin", "start states of"), ("obs.bin", "episode 0 of")):
        content = bytearray((tmp_path / "set" / name).read_bytes())
        content[5] ^= 1
        (tmp_path / "set" / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            Dataset.open(tmp_path / "set").verify()


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors"])
def test_data_do_not_go_into_the_folder_of_a_model(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(DataError, match="holds a model: choose another folder for the data"):
        DatasetWriter(tmp_path)
