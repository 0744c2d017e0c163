"""Moving pictures: of the demo, of the zoo, and what they say where nothing can be drawn."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from zol.cli import main
from zol.common.animation import lettering, write_animation
from zol.common.errors import DataError, MissingExtra
from zol.demo import film, gallery
from zol.demo.story import verdict
from zol.report import Scores
from zol.worlds import make


def pictures(count: int) -> list[np.ndarray]:
    return [np.full((20, 30, 3), 40 * k, dtype=np.uint8) for k in range(count)]


def frames_of(picture: Any) -> int:
    return int(picture.n_frames)


def test_an_animation_has_every_picture_in_order(tmp_path: Path) -> None:
    path = write_animation(tmp_path / "a.webp", pictures(4), fps=10, hold=2.0)
    with Image.open(path) as found:
        assert frames_of(found) == 4
        levels, times = [], []
        for k in range(4):
            found.seek(k)
            levels.append(np.asarray(found.convert("RGB")).mean())
            times.append(found.info["duration"])
    np.testing.assert_allclose(levels, [0, 40, 80, 120], atol=3)
    assert times == [100, 100, 100, 2000]
    with pytest.raises(DataError, match=r"written to a \.webp file"):
        write_animation(tmp_path / "a.gif", pictures(1), fps=10)
    with pytest.raises(DataError, match="no pictures"):
        write_animation(tmp_path / "a.webp", [], fps=10)


def test_lettering_marks_the_picture_and_not_its_original() -> None:
    (paper,) = pictures(1)
    written = lettering(paper, "words", (15, 10), anchor="mm", colour=(255, 255, 255))
    assert written.max() > 100
    assert paper.max() == 0


def scores(**means: float) -> Scores:
    """Constant scores but for noise that all methods share."""
    shared = np.random.default_rng(0).normal(0, 0.1, (1, 2, 50))
    return Scores(("a", "b"), {name: mean + shared for name, mean in means.items()})


@pytest.mark.parametrize(
    ("default", "words"),
    [
        (0.7, "The default, rehearse, beats plain FB: it earns 0.7"),
        (0.3, "loses to plain FB"),
        (0.5, "keeps plain FB's latents"),
    ],
)
def test_the_verdict_is_what_the_numbers_say(default: float, words: str) -> None:
    found = scores(fb=0.5, zol=0.45, rehearse=default, **{"perturb-far": 0.4})
    sentence = verdict(found, "rehearse")
    assert words in sentence
    assert "the paper's search -0.050" in sentence
    assert ("nothing here does better" in sentence) == (default >= 0.5)
    assert ("the best is fb" in sentence) == (default == 0.3)


def test_a_difference_within_noise_is_called_so() -> None:
    noise = np.random.default_rng(2).normal(0, 0.1, (1, 2, 50))
    noise -= noise.mean() - 0.001
    plain = scores(fb=0.5, zol=0.5, **{"perturb-far": 0.5})
    found = Scores(plain.tasks, {**plain.values, "rehearse": plain.values["fb"] + noise})
    assert "rehearse, cannot be told from plain FB" in verdict(found, "rehearse")


def test_a_model_of_the_zoo_on_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "SECONDS", 0.4)
    monkeypatch.setattr(film, "EPISODES", 1)
    made = film.make_film(tmp_path, seed=0)
    assert made.picture == tmp_path / "film.webp"
    assert "spin over and over" in made.words
    with Image.open(made.picture) as found:
        assert found.size == film.SIZE
        assert np.asarray(found.convert("RGB")).std() > 10  # something is drawn


def test_without_a_simulator_the_page_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise MissingExtra("mujoco", "dmc", "the world 'walker'")

    monkeypatch.setattr(film, "show", missing)
    made = film.make_film(tmp_path, seed=0)
    assert made.picture is None
    assert "mujoco" in made.words


def test_the_gallery_is_one_picture_of_several_behaviours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maze = gallery.SHOWN[5]
    both = (maze, replace(maze, wish="reach_top_left"))
    assert {behaviour.model for behaviour in both} == {"point_mass_maze"}
    monkeypatch.setattr("zol.cli.gallery.SHOWN", both)
    main(f"gallery --out {tmp_path / 'b.webp'} --method fb --seconds 0.5 --episodes 1".split())
    with Image.open(tmp_path / "b.webp") as found:
        assert found.size == (2 * gallery.WIDTH, gallery.HEIGHT + gallery.CAPTION)
        assert frames_of(found) > 3
    out = capsys.readouterr().out
    assert "point_mass_maze: go to" in out
    assert "1 episodes each, seed 0" in out


def test_the_gallery_of_one_model_shows_every_task_of_its_world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = list(make("point_mass_maze").tasks)
    words = f"gallery point_mass_maze --out {tmp_path / 'maze.webp'} --method fb --seconds 0.2 --episodes 1"
    main(words.split())
    with Image.open(tmp_path / "maze.webp") as found:
        rows = -(-len(tasks) // 3)
        assert found.size == (3 * gallery.WIDTH, rows * (gallery.HEIGHT + gallery.CAPTION))
    assert [shown.wish for shown in gallery.every_task("point_mass_maze")] == tasks
    assert "reach_top_left" in capsys.readouterr().out


def test_one_command_shows_the_whole_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zol.cli.gallery.names", lambda: ["point_mass_maze", "walker"])
    main(f"gallery --zoo --out {tmp_path} --method fb --seconds 0.1 --episodes 1".split())
    assert {path.name for path in tmp_path.iterdir()} == {"point_mass_maze.webp", "walker.webp"}
    for words in ("gallery walker --zoo --out a", "gallery --zoo --out a.webp"):
        with pytest.raises(SystemExit):
            main(words.split())


def test_a_gallery_of_another_kind_of_file_is_refused_before_anything_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gallery, "show", lambda *_, **__: pytest.fail("time was spent"))
    with pytest.raises(DataError, match=r"written to a \.webp file, got 'a\.gif'"):
        gallery.write_gallery(tmp_path / "a.gif")
