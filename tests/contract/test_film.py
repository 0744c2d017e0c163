"""Films show what rollouts do, in real time, or say why they cannot be made."""

from collections.abc import Generator
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch

from zol.common.errors import MissingExtra, WorldError
from zol.film import captioned, film, frames, played, require_drawable
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.rollout import evaluate
from zol.testing.exact import ExactFB
from zol.worlds import make
from zol.worlds.base import Marking
from zol.worlds.dmc.render import render_backend
from zol.worlds.tabular import TabularWorld, corridor

STEPS = 20


@pytest.fixture(scope="module")
def model() -> Network:
    return fb_network(FBConfig(obs_dim=24, action_dim=6, z_dim=8, hidden=16))


@pytest.fixture(scope="module")
def latents(model: Network) -> list[Latent]:
    z = model.project(torch.randn(2, model.z_dim, generator=torch.Generator().manual_seed(0)))
    return [Latent(row, identity(model), task, "") for row, task in zip(z, ("stand", "run"), strict=True)]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_a_film_per_latent_in_real_time(model: Network, latents: list[Latent], tmp_path: Path) -> None:
    world = make("walker")
    if render_backend() is None:
        with pytest.raises(WorldError, match="neither EGL nor OSMesa"):
            film(world, model, latents, tmp_path / "films", generator=seeded(), steps=STEPS)
        assert not (tmp_path / "films").exists()
        return
    paths = film(world, model, latents, tmp_path / "films", generator=seeded(), steps=STEPS)
    assert [path.name for path in paths] == ["stand.mp4", "run.mp4"]
    for path in paths:
        frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
        assert frames == STEPS // 2 + 1  # 40 control steps per second, 20 pictures
        assert seconds == pytest.approx(frames * 0.05, abs=0.02)
        assert next(imageio_ffmpeg.read_frames(str(path)))["size"] == (480, 480)


def test_captions_tell_what_is_going_on() -> None:
    picture = np.full((480, 480, 3), 128, np.uint8)
    told = captioned(picture, "stand by fb   1.0 s   return 3.0")
    assert told.shape == picture.shape
    assert np.array_equal(told[:440], picture[:440])  # the body is not hidden
    assert told[450:].max() > 200  # letters
    assert not np.array_equal(told, captioned(picture, "stand by fb   1.0 s   return 4.0"))


@pytest.mark.skipif(render_backend() is None, reason="nothing draws here")
def test_the_maze_shows_where_to_go() -> None:
    world = make("point_mass_maze")
    physics = world.reset(1, seeded()).physics
    assert physics is not None
    with require_drawable(world).painter(160, 160) as painter:
        assert isinstance(painter, Marking)
        plain = painter.frame(physics[0])
        painter.mark(world.tasks["reach_bottom_left"].place)
        marked = painter.frame(physics[0])
    changed = np.argwhere((plain != marked).any(-1))
    rows, columns = changed.mean(0)
    assert rows > 80  # below the centre,
    assert columns < 80  # and left of it
    assert (2 * world.tasks["reach_top_left"]).place == world.tasks["reach_top_left"].place
    assert (-1 * world.tasks["reach_top_left"]).place is None


def test_they_show_the_episodes_that_rollouts_score(model: Network, latents: list[Latent]) -> None:
    world = make("walker")
    filmed = played(world, model, latents, generator=seeded(), steps=STEPS)
    physics = torch.stack([states.physics for states in filmed if states.physics is not None])
    scored = evaluate(
        world, model, latents, episodes=1, generator=seeded(), steps=STEPS, keep_visited=True
    ).visited
    assert scored is not None
    shown = world.observe(physics[1:].flatten(0, 1)).reshape(STEPS, 2, -1)
    torch.testing.assert_close(shown, scored.squeeze(2), atol=1e-3, rtol=1e-3)


class Sketched(TabularWorld):
    """The corridor, drawn as one bright column: films need no MuJoCo."""

    control_timestep = 0.1
    open_painters = 0

    def painter(self, width=320, height=320):
        return Sketch(self, width, height)


class Sketch:
    def __init__(self, world, width, height):
        self.world, self.shape = world, (height, width, 3)

    def frame(self, physics):
        picture = np.zeros(self.shape, np.uint8)
        picture[:, int(physics[0])] = 255
        return picture

    def __enter__(self):
        self.world.open_painters += 1
        return self

    def __exit__(self, *_):
        self.world.open_painters -= 1


class TestAWorldThatDrawsItself:
    def world(self) -> Sketched:
        plain = corridor(slip=0.0)
        return Sketched(plain.name, plain.mdp, plain.episode_length, plain.tasks.values())

    def model(self, world: Sketched) -> ExactFB:
        return ExactFB(world.mdp, torch.full((9,), 1 / 9, dtype=torch.float64), temperature=1e-3)

    def latents(self, model: ExactFB, *tasks: str) -> list[Latent]:
        goals = {"right": 8, "left": 0, "somewhere": 8}
        return [Latent(model.features()[goals[task]], identity(model), task, "") for task in tasks]

    def test_frames_follow_the_states(self) -> None:
        world = self.world()
        model = self.model(world)
        latents = self.latents(model, "right", "left", "somewhere")
        steps = list(played(world, model, latents, generator=seeded(), steps=20))
        pictures = list(frames(world, model, latents, generator=seeded(), steps=20, width=10, height=4))
        cells = [states.physics[:, 0].long().tolist() for states in steps if states.physics is not None]
        assert [[int(p[0, :, 0].argmax()) for p in row] for row in pictures] == cells
        assert pictures[0][0].shape == (4, 10, 3)
        begins, ends = cells[0], cells[-1]
        assert begins[0] in (1, 2)  # each task from its own start; one that the world does not know, from its
        assert begins[1] in (6, 7)
        assert begins[2] == 4
        assert ends == [8, 0, 8]  # and there they stay
        every_third = list(
            frames(world, model, latents, generator=seeded(), steps=20, stride=3, width=10, height=4)
        )
        assert all(np.array_equal(one, other) for one, other in zip(every_third, pictures[::3], strict=True))
        assert world.open_painters == 0

    def test_a_policy_that_is_more_than_a_latent_is_shown_as_it_acts(self) -> None:
        world = self.world()
        model = self.model(world)
        right, left = self.latents(model, "right", "left")

        def the_other_way(obs: torch.Tensor) -> torch.Tensor:
            assert obs.shape[:2] == (2, 1)
            return model.act(obs, torch.stack([left.z, right.z]).unsqueeze(1))

        *_, last = played(world, model, [right, left], generator=seeded(), policy=the_other_way, steps=20)
        assert last.physics is not None
        assert last.physics[:, 0].long().tolist() == [0, 8]

    def test_a_viewer_may_leave_early(self) -> None:
        world = self.world()
        model = self.model(world)
        showing = frames(world, model, self.latents(model, "right"), generator=seeded(), width=10, height=4)
        next(showing)
        assert world.open_painters == 1
        assert isinstance(showing, Generator)
        showing.close()
        assert world.open_painters == 0
        assert torch.is_grad_enabled()

    def test_it_is_filmed_too(self, tmp_path: Path) -> None:
        world = self.world()
        model = self.model(world)
        (path,) = film(world, model, self.latents(model, "left"), tmp_path, generator=seeded(), steps=4)
        assert imageio_ffmpeg.count_frames_and_secs(str(path))[0] == 5
        assert [file.name for file in tmp_path.iterdir()] == ["left.mp4"]


def test_what_is_missing_is_said_before_anything_is_drawn(
    model: Network, latents: list[Latent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorldError, match="donut cannot draw itself"):
        film(make("donut"), model, latents, tmp_path / "films", generator=seeded())
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtra, match="video"):
        film(make("walker"), model, latents, tmp_path / "films", generator=seeded())
    assert not (tmp_path / "films").exists()
