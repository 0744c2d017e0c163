"""Writers that are killed, locked out, or run out of disk."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from killing import run

from zol.common.errors import DataError
from zol.data import Dataset, DatasetWriter


def write(say, path: Path, episodes: int) -> None:
    """Append episodes that depend on nothing but their number, and say so after each commit."""
    with DatasetWriter(path) as writer:
        say(writer.episodes)
        while writer.episodes < episodes:
            batch = [np.random.default_rng(writer.episodes + i) for i in range(2)]
            obs = np.stack([g.standard_normal((21, 6)) for g in batch])
            action = np.stack([g.uniform(-1, 1, (20, 3)) for g in batch])
            writer.append_batch(obs, action, physics=obs)
            say(writer.episodes)


def write_with_little_room(say, path: Path) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    try:
        write(lambda _: None, path, 100)
    except DataError as error:
        say(str(error))


def test_killed_twenty_times_nothing_is_lost(tmp_path: Path):
    path, choose, promised = tmp_path / "set", random.Random(0), 0
    for _ in range(20):
        promised = max(promised, *run(write, path, 100_000, kill_after=choose.uniform(0.0, 0.06)))
        if promised:
            data = Dataset.open(path)
            assert data.episodes >= promised
            assert data.stored_digests is not None
            assert [bytes(d) for d in data.stored_digests] == list(data.digests())
    assert promised > 20
    total = Dataset.open(path).episodes + 2 & ~1
    run(write, path, total)
    run(write, tmp_path / "calm", total)
    assert Dataset.open(path).fingerprint() == Dataset.open(tmp_path / "calm").fingerprint()


def test_a_torn_tail_is_ignored_then_cut(tmp_path: Path):
    path = tmp_path / "set"
    run(write, path, 4)
    before = Dataset.open(path).fingerprint()
    for name in ("obs.bin", "action.bin", "episodes.bin"):
        with (path / name).open("ab") as file:
            file.write(b"\x01" * 45)
    assert Dataset.open(path).fingerprint() == before
    run(write, path, 6)
    run(write, tmp_path / "calm", 6)
    assert Dataset.open(path).fingerprint() == Dataset.open(tmp_path / "calm").fingerprint()


def test_second_writer_is_refused(tmp_path: Path):
    with DatasetWriter(tmp_path / "set"), pytest.raises(DataError, match="another process is writing"):
        DatasetWriter(tmp_path / "set")
    with DatasetWriter(tmp_path / "set"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX thing")
def test_full_disk_keeps_what_was_written(tmp_path: Path):
    path = tmp_path / "set"
    (said,) = run(write_with_little_room, path)
    assert "cannot write to" in said
    assert "its 2 episodes are safe" in said
    assert Dataset.open(path).episodes == 2
    run(write, path, 6)
    assert Dataset.open(path).episodes == 6


def test_ctrl_c_inside_an_append_leaves_a_clean_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    obs, action = np.ones((3, 2)), np.ones((2, 1))
    with DatasetWriter(tmp_path / "set") as writer:
        writer.append_episode(obs, action)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                writer.append_episode(obs, action)
        writer.append_episode(obs * 2, action, terminated=True)
    data = Dataset.open(tmp_path / "set")
    assert data.columns["obs"][:, 0].tolist() == [1, 1, 1, 2, 2, 2]
    assert data.columns["terminated"].tolist() == [0, 0, 0, 0, 1, 0]
