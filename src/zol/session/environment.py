"""Skills in a user's own gymnasium environment: what they earn there, and films of it."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.fields import Layout, States
from zol.session.evaluation import Evaluation
from zol.session.skill import Skill
from zol.tasks import Task
from zol.worlds.gym_env import Actor, GymEnvironment, PlayedEpisode


def evaluate_in(
    environment: GymEnvironment,
    layout: Layout,
    skills: Sequence[Skill],
    episodes: int,
    *,
    seed: int,
    steps: int | None = None,
    sampled: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Play every skill, and random actions, from the same start states."""
    model = skills[0].model
    environment.require_sizes(model.obs_dim, model.action_dim)
    bar = Ticker(progress, "playing", (1 + len(skills)) * episodes, note="episodes")

    def play(act: Actor) -> list[PlayedEpisode]:
        played = []
        with one_torch_thread():
            for episode in environment.episodes(act, episodes, seed=seed, steps=steps):
                played.append(episode)
                bar.advance()
        return played

    chance = play(environment.random_actor(seed))
    generator = torch.Generator().manual_seed(seed) if sampled else None
    tried = [play(partial(skill.act, generator=generator)) for skill in skills]
    bar.finish()
    return Evaluation(
        world=environment.name,
        tasks=tuple(skill.latent.task for skill in skills),
        methods=tuple(skill.latent.method for skill in skills),
        returns=np.stack([_own(played) for played in tried]),
        random=np.stack([_own(chance)] * len(skills)),
        steps=min(steps or environment.episode_length, environment.episode_length),
        wanted=np.stack([_wanted(k.task, layout, played) for k, played in zip(skills, tried, strict=True)]),
        wanted_random=np.stack([_wanted(skill.task, layout, chance) for skill in skills]),
    )


def _own(played: Sequence[PlayedEpisode]) -> NDArray[np.float64]:
    """The environment's own return of every episode."""
    return np.array([episode.rewards.sum() for episode in played])


def _wanted(task: Task | None, layout: Layout, played: Sequence[PlayedEpisode]) -> NDArray[np.float64]:
    """The task's return of every episode; NaN where it cannot be told from observations and actions."""
    returns = np.full(len(played), np.nan)
    if task is not None:
        with suppress(DataError):
            for k, episode in enumerate(played):
                obs, action = torch.from_numpy(episode.obs), torch.from_numpy(episode.action)
                returns[k] = float(task(States(obs, layout, action)).double().sum())
    return returns


def film_in(
    environment: GymEnvironment,
    skills: Sequence[Skill],
    folder: str | Path,
    *,
    seed: int,
    steps: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ``folder/TASK.mp4`` of one episode of every skill, and return the paths."""
    from zol.film import Video, video_writer

    video_writer()
    require_place(folder, "--video")
    model = skills[0].model
    environment.require_sizes(model.obs_dim, model.action_dim)
    length = min(steps or environment.episode_length, environment.episode_length)
    bar, paths = Ticker(progress, "filming", len(skills) * (length + 1)), []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for skill in skills:
        path = Path(folder) / f"{skill.latent.task}.mp4"
        with one_torch_thread(), Video(path, environment.pictures_per_second) as video:
            for picture in environment.pictures(skill.act, seed=seed, steps=steps):
                video.add(picture)
                bar.advance()
        paths.append(path)
    bar.finish()
    return paths
