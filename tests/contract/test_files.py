"""Files and folders appear whole or not at all, whatever happens to the process that writes them."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import run

from zol.common.errors import DataError
from zol.common.files import DiskFull, lock, new_folder, write_atomic
from zol.common.outputs import require_place
from zol.data import Dataset
from zol.data.writer import building
from zol.models.base import Latent

OBS, ACTION = np.zeros((4, 2)), np.zeros((3, 1))


def build(say, path: Path, episodes: int) -> None:
    """Fill a set, as an import does; process numbers repeat, as they do in containers."""
    os.getpid = lambda: 7
    with building(path, {}) as writer:
        for number in range(episodes):
            writer.append_episode(OBS + number, ACTION)
            say(number)
            if number == 2 and episodes == 100:
                os._exit(0)  # as if killed: nothing that would clean up runs


def test_an_import_that_was_killed_and_run_again_has_every_episode_once(tmp_path: Path) -> None:
    path = tmp_path / "set"
    run(build, path, 100)
    assert not path.exists()
    run(build, path, 5)
    assert Dataset.open(path).episodes == 5
    assert not list(tmp_path.glob(".*")), "what the killed one left behind is gone"


def test_a_folder_that_is_being_filled_is_left_alone(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a") as first:
        (first / "x").write_text("1")
        with suppress(RuntimeError), new_folder(tmp_path / "a") as second:
            assert second != first
            raise RuntimeError
        assert (first / "x").exists()
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["x"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    with pytest.raises(DataError, match="already exists"), new_folder(tmp_path / "a"):
        pass


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary names cannot be guessed; and if one were taken, it would not be written through."""
    monkeypatch.setattr("secrets.token_hex", lambda n: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".a.json.guessed.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a.json", b"{}")
    assert victim.read_text() == "precious"


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    dead, living = tmp_path / ".a.json.dead.tmp", tmp_path / ".a.json.living.tmp"
    dead.write_text("half")
    with lock(living):
        write_atomic(tmp_path / "a.json", b"{}")
        assert sorted(tmp_path.iterdir()) == [living, tmp_path / "a.json"]
    write_atomic(tmp_path / "a.json", b"{}")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127])
def test_the_longest_names_that_a_disk_takes(tmp_path: Path, name: str) -> None:
    write_atomic(tmp_path / name, b"1")
    assert (tmp_path / name).read_bytes() == b"1"
    with new_folder(tmp_path / "below" / name) as folder:
        (folder / "x").touch()
    assert [p.name for p in (tmp_path / "below").iterdir()] == [name]


def test_a_latent_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "latent.json"
    Latent(torch.ones(3), "abc", "run", "fb").save(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull, match="no room for"):
        Latent(torch.zeros(3), "abc", "run", "fb").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["latent.json"]


def test_a_place_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "Runs").touch()
    with pytest.raises(DataError, match=f"{tmp_path / 'Runs'} is a file, a folder was expected"):
        require_place(tmp_path / "Runs" / "One")
