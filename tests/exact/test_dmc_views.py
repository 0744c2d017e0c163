"""Views of a world: gymnasium, pictures, videos and the command line."""

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from zol.cli import main
from zol.common.errors import DataError, WorldError
from zol.film import write_video
from zol.tasks import Task
from zol.worlds import make
from zol.worlds.dmc import render
from zol.worlds.dmc.gym import GymView


@pytest.fixture
def walker():
    return make("walker")


# These observations have no bounds, and the view is not registered under an id: both are as they should be.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes:UserWarning")
@pytest.mark.parametrize(
    ("name", "task"), [("walker", "run"), ("quadruped", "jump"), ("pointmass", "reach_top_left")]
)
def test_gymnasiums_own_checks_pass(name, task):
    check_env(GymView(name, task))


def test_the_gymnasium_view_is_the_world(walker):
    view = GymView("walker", "stand")
    obs, info = view.reset(seed=3)
    states = walker.set_physics(torch.from_numpy(info["physics"])[None])
    np.testing.assert_array_equal(obs, states.obs[0].float().numpy())
    action = np.full(6, 0.5, dtype=np.float32)
    obs, reward, terminated, truncated, _ = view.step(action)
    states = walker.step(torch.from_numpy(action)[None])
    np.testing.assert_array_equal(obs, states.obs[0].float().numpy())
    assert reward == float(walker.tasks["stand"](states)[0])
    assert not terminated
    assert not truncated


def test_an_episode_is_truncated_after_1000_steps():
    view = GymView("pointmass", "reach_top_left")
    view.reset(seed=0)
    ends = [view.step(np.zeros(2, dtype=np.float32))[2:4] for _ in range(1000)]
    assert ends[:-1] == [(False, False)] * 999
    assert ends[-1] == (False, True)


def test_unknown_tasks_and_modes_of_the_view_are_explained():
    with pytest.raises(DataError, match=r"did you mean 'run'"):
        GymView("walker", "rum")
    with pytest.raises(DataError, match=r"'rgb_array', got 'human'"):
        GymView("walker", "run", render_mode="human")


def test_pictures_show_the_state(walker):
    physics = walker.reset(2, torch.Generator().manual_seed(0)).physics
    if render.render_backend() is None:  # a machine without EGL and OSMesa: it must say so
        with pytest.raises(WorldError, match=r"neither EGL nor OSMesa"):
            render.render(walker, physics)
        return
    pictures = render.render(walker, physics[[0, 0, 1]], width=64, height=48)
    assert pictures.shape == (3, 48, 64, 3)
    assert pictures.dtype == np.uint8
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).mean() > 0.01
    view = GymView("walker", "run", render_mode="rgb_array")
    view.reset(seed=0)
    picture = view.render()
    assert picture is not None
    assert picture.shape == (320, 320, 3)
    view.close()


def test_a_machine_that_cannot_draw_says_what_to_install(walker, monkeypatch):
    monkeypatch.setattr(render, "_draws", lambda backend: False)
    render.render_backend.cache_clear()
    with pytest.raises(WorldError, match=r"apt-get install libegl1"):
        render.Renderer(walker)
    render.render_backend.cache_clear()


@pytest.mark.parametrize(
    ("setting", "tried"), [("", ["egl", "osmesa"]), ("osmesa", ["osmesa"]), ("glfw", ["egl", "osmesa"])]
)
def test_egl_is_tried_before_osmesa_unless_one_is_chosen(setting, tried, monkeypatch):
    seen = []
    monkeypatch.setenv("MUJOCO_GL", setting)
    monkeypatch.setattr(render, "_draws", lambda backend: seen.append(backend))
    render.render_backend.cache_clear()
    assert render.render_backend() is None
    assert seen == tried
    render.render_backend.cache_clear()


def test_a_crashing_driver_is_only_a_back_end_that_does_not_work(monkeypatch):
    monkeypatch.setattr(render, "PROBE", "import os; os.abort()")
    assert not render._draws("egl")


def test_videos_are_complete_and_nothing_else_is_left(tmp_path):
    pictures = np.random.default_rng(0).integers(0, 255, (12, 32, 48, 3), dtype=np.uint8)
    write_video(tmp_path / "a.mp4", pictures, fps=40)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))
    assert frames == 12
    assert seconds == pytest.approx(12 / 40, abs=0.01)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
    with pytest.raises(DataError, match=r"even sides, got shape \(31, 48, 3\)"):
        write_video(tmp_path / "a.mp4", pictures[:, :31], fps=40)
    with pytest.raises(DataError, match=r"an \.mp4 file, got 'a\.gif'"):
        write_video(tmp_path / "a.gif", pictures, fps=40)
    with pytest.raises(DataError, match="even sides"):  # after a good picture
        write_video(tmp_path / "b.mp4", [pictures[0], pictures[0, :31]], fps=40)
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_worlds_show_prints_fields_and_tasks(capsys):
    main(["worlds", "show", "walker"])
    printed = capsys.readouterr().out
    for word in ("torso_height", "orientations", "angular_momentum", "spin", "24 observations", "[m/s]"):
        assert word in printed


@pytest.mark.parametrize("name", ["walker", "cheetah", "quadruped", "point_mass_maze"])
def test_the_docs_name_every_field_and_task(name):
    page = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text(encoding="utf-8")
    world = make(name)
    tasks = [task for task in world.tasks if not task.endswith("_exorl")]
    missing = [word for word in [*world.layout.names, *tasks] if f"`{word}`" not in page]
    assert not missing


def test_worlds_show_suggests_a_near_miss(capsys):
    with pytest.raises(SystemExit):
        main(["worlds", "show", "quadrupped"])
    assert "did you mean 'quadruped'" in capsys.readouterr().err


def test_gym_episodes_start_and_end_where_the_task_says():
    env = GymView("point_mass_maze", "reach_top_left")
    place = torch.tensor([[0.2, 0.2, 0.0, 0.0]], dtype=torch.float64)
    env.task = Task(
        "leave",
        lambda s: s["position"][..., 0],
        starts=lambda n, generator: place.expand(n, -1),
        success=lambda s: s["position"][..., 0] > 0.205,
        ends_at_success=True,
    )
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == place[0].float().tolist()
    told: list[tuple[bool, bool]] = []
    while not told or not told[-1][0]:
        obs, _, terminated, truncated, info = env.step(np.array([1.0, 0.0], np.float32))
        told.append((terminated, info["success"]))
        assert not truncated
        assert terminated == info["success"] == (obs[0] > 0.205)
    assert 2 < len(told) < 50
    env.close()
