"""Writers that are killed, locked out, or run out of disk."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from zol.data import Dataset, DatasetWriter
from zol.errors import DataError

# Appends episodes that depend on nothing but their number, and says so after each commit.
WRITER = """
import sys, numpy as np
from zol.data import DatasetWriter
with DatasetWriter(sys.argv[1]) as writer:
    print("ready", flush=True)
    while writer.episodes < int(sys.argv[2]):
        batch = [np.random.default_rng(writer.episodes + i) for i in range(2)]
        obs = np.stack([g.standard_normal((21, 6)) for g in batch])
        action = np.stack([g.uniform(-1, 1, (20, 3)) for g in batch])
        writer.append_batch(obs, action, physics=obs)
        print(writer.episodes, flush=True)
"""


def start(path: Path, episodes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(episodes)], stdout=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate()
    return said


def test_killed_twenty_times_nothing_is_lost(tmp_path: Path):
    path, choose, promised = tmp_path / "set", random.Random(0), 0
    for _ in range(20):
        process = start(path, 100_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(choose.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        whole_lines = finish(process).split("\n")[:-1]
        promised = max([promised, *map(int, whole_lines)])
        if promised:
            data = Dataset.open(path)
            assert data.episodes >= promised
            assert [bytes(d) for d in data.stored_digests] == list(data.digests())
    assert promised > 20
    total = Dataset.open(path).episodes + 2 & ~1
    finish(start(path, total))
    finish(start(tmp_path / "calm", total))
    assert Dataset.open(path).fingerprint() == Dataset.open(tmp_path / "calm").fingerprint()


def test_a_torn_tail_is_ignored_then_cut(tmp_path: Path):
    path = tmp_path / "set"
    finish(start(path, 4))
    before = Dataset.open(path).fingerprint()
    for name in ("obs.bin", "action.bin", "episodes.bin"):
        with (path / name).open("ab") as file:
            file.write(b"\x01" * 45)
    assert Dataset.open(path).fingerprint() == before
    finish(start(path, 6))
    finish(start(tmp_path / "calm", 6))
    assert Dataset.open(path).fingerprint() == Dataset.open(tmp_path / "calm").fingerprint()


def test_second_writer_is_refused(tmp_path: Path):
    with DatasetWriter(tmp_path / "set"), pytest.raises(DataError, match="another process is writing"):
        DatasetWriter(tmp_path / "set")
    with DatasetWriter(tmp_path / "set"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX thing")
def test_full_disk_keeps_what_was_written(tmp_path: Path):
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    path = tmp_path / "set"
    found = subprocess.run(
        [sys.executable, "-c", limit + WRITER, str(path), "100"], capture_output=True, text=True, check=False
    )
    assert "cannot write to" in found.stderr
    assert "its 2 episodes are safe" in found.stderr
    assert Dataset.open(path).episodes == 2
    finish(start(path, 6))
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
