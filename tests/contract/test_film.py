"""Films show what rollouts do, in real time, or say why they cannot be made."""

from pathlib import Path

import imageio_ffmpeg
import pytest
import torch

from zol import film as films
from zol.common.errors import MissingExtra, WorldError
from zol.film import film
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.rollout import evaluate
from zol.worlds import make
from zol.worlds.dmc.render import render_backend

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


def test_they_show_the_episodes_that_rollouts_score(model: Network, latents: list[Latent]) -> None:
    world = make("walker")
    physics = films._episodes(world, model, latents, STEPS, seeded())
    played = evaluate(
        world, model, latents, episodes=1, generator=seeded(), steps=STEPS, keep_visited=True
    ).visited
    shown = world.observe(physics[1:].flatten(0, 1)).reshape(STEPS, 2, -1)
    torch.testing.assert_close(shown, played.squeeze(2), atol=1e-3, rtol=1e-3)


def test_what_is_missing_is_said_before_anything_is_drawn(
    model: Network, latents: list[Latent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorldError, match="donut is not simulated by MuJoCo"):
        film(make("donut"), model, latents, tmp_path / "films", generator=seeded())
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtra, match="video"):
        film(make("walker"), model, latents, tmp_path / "films", generator=seeded())
    assert not (tmp_path / "films").exists()
