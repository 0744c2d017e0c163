"""Films of behaviours: one episode of every latent, all from the same start state."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from zol.common.errors import WorldError
from zol.common.threads import one_torch_thread
from zol.models.base import Latent, Model, identity
from zol.worlds.base import World
from zol.worlds.dmc.render import Renderer, video_writer, write_video
from zol.worlds.dmc.world import ControlWorld

FASTEST = 25.0  # pictures per second that are worth drawing: one takes as long as dozens of physics steps


def film(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    folder: str | Path,
    *,
    generator: torch.Generator,
    steps: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``folder/TASK.mp4`` for every latent, in real time, and return the paths."""
    if not isinstance(world, ControlWorld):
        raise WorldError(f"{world.name} is not simulated by MuJoCo, so there is nothing to film")
    video_writer()  # before a minute is spent on drawing
    stride = max(1, round(1 / (FASTEST * world.domain.control_timestep)))
    folder, paths = Path(folder), []
    with Renderer(world) as renderer:
        physics = _episodes(world, model, latents, steps or world.episode_length, generator)[::stride]
        folder.mkdir(parents=True, exist_ok=True)
        bar = progress.add_task("drawing", total=physics.shape[0] * physics.shape[1]) if progress else None
        for latent, states in zip(latents, physics.unbind(1), strict=True):
            pictures = []
            for state in states:
                pictures.append(renderer.frame(state))
                if progress and bar is not None:
                    progress.advance(bar)
            paths.append(folder / f"{latent.task}.mp4")
            write_video(paths[-1], np.stack(pictures), 1 / (stride * world.domain.control_timestep))
    return paths


@torch.no_grad()
def _episodes(
    world: ControlWorld, model: Model, latents: Sequence[Latent], steps: int, generator: torch.Generator
) -> Tensor:
    """Simulator states of one episode per latent, ``[steps + 1, L, P]``."""
    own = identity(model)
    z = torch.stack([latent.require(own) for latent in latents])
    world.reset(1, generator)
    states = world.set_physics(world.physics.repeat(len(z), 1))
    physics = [world.physics]
    with one_torch_thread():
        for _ in range(steps):
            states = world.step(model.act(states.obs.to(z.dtype), z))
            physics.append(world.physics)
    return torch.stack(physics)
