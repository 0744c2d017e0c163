"""The data commands, as a user types them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zol.cli import main
from zol.data import Dataset, DatasetWriter


@pytest.fixture
def walker(tmp_path: Path) -> Path:
    """Two short episodes that claim to come from the walker."""
    rng = np.random.default_rng(0)
    path = tmp_path / "walker"
    obs = rng.standard_normal((10, 24))
    Dataset.from_arrays(obs, rng.uniform(-1, 1, (10, 6)), obs + 1, provenance={"world": "walker"}).save(path)
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("zol: ")
    assert said.count("\n") == 1
    return said


def test_show_explains_the_columns(walker: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("mujoco")
    main(["data", "show", str(walker)])
    said = capsys.readouterr().out
    assert "10 transitions in 10 episodes" in said
    assert "torso_height" in said
    assert "cells occupied" in said
    assert "states that earn" in said
    assert Dataset.open(walker).fingerprint() in said


def test_show_says_what_the_tasks_pay(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    """Three of four balls rest in the corner; the other three corners pay next to nothing, all alike."""
    pytest.importorskip("mujoco")
    monkeypatch.setenv("COLUMNS", "120")
    obs = np.array([[-0.15, 0.15, 0, 0]] * 3 + [[-0.15, -0.29, 0, 0]])
    data = Dataset.from_arrays(obs, np.zeros((4, 2)), obs, provenance={"world": "point_mass_maze"})
    data.save(tmp_path / "maze")
    main(["data", "show", str(tmp_path / "maze")])
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines()]
    paid = {row[1].strip(): [cell.strip() for cell in row[2:7]] for row in rows if len(row) == 8}
    assert paid["reach_top_left_exorl"] == ["0.75", "1", "1", "1", "75 %"]
    assert paid["square"] == ["0", "0", "0", "0", "all alike"]


def test_a_set_without_a_whole_episode_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path / "set") as writer:
        writer.append_episode(rng.uniform(size=(3, 2)), np.zeros((2, 1)))
    (tmp_path / "set" / "episodes.bin").write_bytes(b"")  # as a kill before the first commit leaves it
    assert "no whole episode yet" in refused(capsys, "data", "show", str(tmp_path / "set"))


def test_check_finds_a_flipped_bit(walker: Path, capsys: pytest.CaptureFixture[str]):
    main(["data", "check", str(walker)])
    assert "10 episodes are intact" in capsys.readouterr().out
    column = bytearray((walker / "obs.bin").read_bytes())
    column[500] ^= 1
    (walker / "obs.bin").write_bytes(column)
    assert "episode 2 of" in refused(capsys, "data", "check", str(walker))


def test_subset(walker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["data", "subset", str(walker), "--out", str(tmp_path / "part"), "--episodes", "4", "--seed", "1"])
    assert Dataset.open(tmp_path / "part").episodes == 4
    assert "has 10 episodes, 40 were asked for" in refused(
        capsys, "data", "subset", str(walker), "--out", str(tmp_path / "more"), "--episodes", "40"
    )


def test_import_from_a_folder_of_downloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    buffer = tmp_path / "in" / "walker" / "rnd" / "buffer"
    buffer.mkdir(parents=True)
    arrays: dict[str, Any] = {
        "observation": np.zeros((3, 24)),
        "action": np.zeros((3, 6)),
        "discount": np.ones((3, 1)),
    }
    np.savez(buffer / "episode_0_2.npz", **arrays)
    out = tmp_path / "out"
    main(["data", "import", "exorl/walker/rnd", "--from-dir", str(tmp_path / "in"), "--out", str(out)])
    assert Dataset.open(out).provenance["world"] == "walker"
    assert "already exists" in refused(capsys, "data", "import", "exorl/walker/rnd", "--out", str(out))


def test_import_of_arrays(tmp_path: Path):
    np.savez(tmp_path / "a.npz", obs=np.zeros((3, 2)), action=np.zeros((3, 1)), next_obs=np.ones((3, 2)))
    main(["data", "import", str(tmp_path / "a.npz"), "--out", str(tmp_path / "out")])
    assert len(Dataset.open(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["data", "shw", "x"], "did you mean 'data show'"),
        (["data", "show", "nowhere"], "nowhere is not a zol dataset"),
        (["data", "import", "exorl/wolker/rnd", "--out", "x"], "did you mean 'walker'"),
        (["data", "import", "x.npz", "--out", "x", "--world", "wlaker"], "did you mean 'walker'"),
        (["explore", "wlaker", "--out", "x"], "did you mean 'walker'"),
    ],
)
def test_mistakes_are_one_line(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_explore_show_and_resimulate_the_maze(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("mujoco")
    from zol.worlds.dmc.render import render_backend

    data, again = str(tmp_path / "maze"), str(tmp_path / "again")
    main(["explore", "point_mass_maze", "--out", data, "--steps", "2000", "--envs", "2", "--how", "random"])
    assert "occupied cells" in capsys.readouterr().out
    main(["data", "resimulate", data, "--out", again])
    assert "after 1000 steps: median" in capsys.readouterr().out
    # Same simulator, same start, same actions: the replay is the original.
    assert Dataset.open(again).fingerprint() == Dataset.open(data).fingerprint()
    if render_backend() is not None:
        main(["data", "film", data, "--out", str(tmp_path / "film.webp"), "--steps", "8", "--size", "32"])
        assert "5 pictures of episode 0, steps 0 to 8" in capsys.readouterr().out
        assert (tmp_path / "film.webp").stat().st_size > 0
    assert "has episodes 0 to 1, 7 was asked for" in refused(
        capsys, "data", "film", data, "--out", str(tmp_path / "x.webp"), "--episode", "7"
    )
    assert "a .webp file" in refused(capsys, "data", "film", data, "--out", str(tmp_path / "film.gif"))
