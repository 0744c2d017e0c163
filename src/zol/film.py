"""Pictures and films of behaviours: one episode of every latent, with a caption and the place to go to.

All of them begin in the same start state, but for tasks that have start states of their own.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np
import torch
from rich.progress import Progress

from zol.common.errors import DataError, WorldError
from zol.common.extras import require
from zol.common.outputs import file_stem, require_place
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.fields import States
from zol.models.base import Latent, Model, identity
from zol.rollout import Policy, start_states
from zol.tasks import Task
from zol.worlds.base import Drawable, Image, Marking, World
from zol.worlds.episode import episode

SIZE = 480  # pixels of a side
FASTEST = 25.0  # pictures per second that are worth drawing: one takes as long as dozens of physics steps


def film(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    folder: str | Path,
    *,
    generator: torch.Generator,
    tasks: Sequence[Task | None] | None = None,
    policy: Policy | None = None,
    steps: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``folder/TASK.mp4`` for every latent, in real time, and return the paths.

    A caption tells the task, the method, the time and what was earned so far. ``tasks`` are what latents are
    scored by, if that is not the world's task of their name. ``policy`` acts instead of π_z, as in
    :func:`zol.rollout.evaluate`: observations ``[L, 1, D]`` → actions ``[L, 1, A]``.
    """
    timestep = require_filming(world).control_timestep
    require_place(folder, "--video")
    stride = max(1, round(1 / (FASTEST * timestep)))
    paths = [Path(folder) / f"{file_stem(latent.task)}.mp4" for latent in latents]
    length = world.episode_length if steps is None else steps
    total = len(latents) * (length // stride + 1)
    bar = Ticker(progress, "drawing", total)
    with ExitStack() as stack:
        videos: list[Video] = []
        shown = frames(
            world,
            model,
            latents,
            generator=generator,
            tasks=tasks,
            policy=policy,
            steps=length,
            stride=stride,
            captions=True,
        )
        for pictures in shown:
            if not videos:
                Path(folder).mkdir(parents=True, exist_ok=True)
                videos = [stack.enter_context(Video(path, 1 / (stride * timestep))) for path in paths]
            for video, picture in zip(videos, pictures, strict=True):
                video.add(picture)
                bar.advance()
    bar.finish()
    return paths


def frames(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    *,
    generator: torch.Generator,
    tasks: Sequence[Task | None] | None = None,
    policy: Policy | None = None,
    steps: int | None = None,
    stride: int = 1,
    width: int = SIZE,
    height: int = SIZE,
    captions: bool = False,
) -> Iterator[list[Image]]:
    """Yield one picture per latent of the start state and of every ``stride``-th state after it.

    The next states are simulated when they are asked for. An episode that is over stays in its last state.
    """
    length = world.episode_length if steps is None else steps
    scored = list(tasks) if tasks is not None else [world.tasks.get(latent.task) for latent in latents]
    earned = [0.0] * len(latents)
    with require_drawable(world).painter(width, height) as painter:
        episodes = played(world, model, latents, generator=generator, policy=policy, steps=length)
        for t, states in enumerate(episodes):
            if captions and t > 0:
                _add_rewards(earned, scored, states)
            if t % stride:
                continue
            physics = states.physics if states.physics is not None else world.physics
            pictures = []
            for k, row in enumerate(physics):
                if isinstance(painter, Marking):
                    painter.mark(None if (task := scored[k]) is None else task.place)
                picture = painter.frame(row)
                if captions:
                    seconds = t * require_drawable(world).control_timestep
                    told = "" if scored[k] is None else f"   return {earned[k]:.1f}"
                    name, method = latents[k].task, latents[k].method
                    picture = captioned(
                        picture, f"{name}{f' by {method}' if method else ''}   {seconds:4.1f} s{told}"
                    )
                pictures.append(picture)
            yield pictures


def _add_rewards(earned: list[float], tasks: Sequence[Task | None], states: States) -> None:
    """What each latent's own task pays for the states that were just reached."""
    for k, task in enumerate(tasks):
        if task is not None:
            earned[k] += float(task(states.rows(slice(k, k + 1))))


def captioned(picture: Image, text: str) -> Image:
    """The picture with a line of text on a dark band at its lower edge."""
    from matplotlib import font_manager
    from PIL import Image as Pictures
    from PIL import ImageDraw, ImageFont

    height, width = picture.shape[:2]
    band = max(12, height // 16)
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), size=round(band * 0.62))
    drawn = Pictures.fromarray(np.ascontiguousarray(picture))
    pen = ImageDraw.Draw(drawn)
    pen.rectangle((0, height - band, width, height), fill=(20, 20, 20))
    pen.text((band // 3, height - band // 2), text, fill=(235, 235, 235), font=font, anchor="lm")
    return np.asarray(drawn)


def played(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    *,
    generator: torch.Generator,
    policy: Policy | None = None,
    steps: int,
) -> Iterator[States]:
    """Yield the states ``[L, …]`` of one episode per latent, beginning with the start state."""
    own = identity(model)
    z = torch.stack([latent.require(own, model.z_dim) for latent in latents])

    def act(states: States) -> torch.Tensor:
        obs = states.obs.to(z.dtype)
        with one_torch_thread(), torch.no_grad():
            return model.act(obs, z) if policy is None else policy(obs.unsqueeze(1)).squeeze(1)

    tasks = [world.tasks.get(latent.task) for latent in latents]
    states = world.set_physics(start_states(world, tasks, 1, generator).flatten(0, 1))
    yield states
    for step in episode(world, states, act, steps):
        yield step.states


def require_filming(world: World) -> Drawable:
    """The world, if it can be filmed here; asked before a minute is spent on drawing."""
    drawable = require_drawable(world)
    video_writer()
    return drawable


def require_drawable(world: World) -> Drawable:
    """The world, if it can draw its states."""
    if not isinstance(world, Drawable):
        raise WorldError(
            f"{world.name} cannot draw itself, so there is nothing to film: a world that can has "
            "'control_timestep' and 'painter' (zol.worlds.base.Drawable)"
        )
    return world


def video_writer() -> ModuleType:
    """The package that writes videos; it can be asked for before anything is drawn."""
    return require("imageio_ffmpeg", "video", "writing a video")


class Video:
    """An .mp4 file that grows picture by picture; it appears when the ``with`` block ends without error."""

    def __init__(self, path: str | Path, fps: float) -> None:
        self.path, self.fps = Path(path), fps
        if self.path.suffix != ".mp4":
            raise DataError(f"a video is written to an .mp4 file, got '{self.path.name}'")
        self._unfinished = self.path.with_suffix(".part.mp4")
        self._writer: Any = None

    def add(self, picture: Image) -> None:
        """Append a picture ``[H, W, 3]`` with even sides, the same for all."""
        if picture.ndim != 3 or picture.shape[0] % 2 or picture.shape[1] % 2:
            raise DataError(f"pictures of a video are [H, W, 3] with even sides, got shape {picture.shape}")
        if self._writer is None:
            size = (picture.shape[1], picture.shape[0])
            self._writer = video_writer().write_frames(
                str(self._unfinished), size, fps=self.fps, macro_block_size=2
            )
            self._writer.send(None)
        self._writer.send(np.ascontiguousarray(picture))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._writer.close()
        if error is None:
            os.replace(self._unfinished, self.path)
        else:
            self._unfinished.unlink(missing_ok=True)


def write_video(path: str | Path, pictures: Iterable[Image], fps: float) -> None:
    """Write pictures ``[T, H, W, 3]`` with even sides as an .mp4 file, complete or not at all.

    A world's real time is ``fps = 1 / world.control_timestep``.
    """
    with Video(path, fps) as video:
        for picture in pictures:
            video.add(picture)
