"""Several behaviours in one moving picture: rewards in words, models of the zoo, nothing trained for them.

    zol gallery --out docs/images/behaviours.webp
    zol gallery walker --out docs/images/walker.webp

The first line makes the picture of the README again, with whatever models the zoo has then; the second one
shows every task of one model's world. Each behaviour is adapted by the default method, tested, and filmed for
a few seconds in real time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from zol import film, report
from zol.common.animation import PAPER, lettering, require_webp, write_animation
from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.fields import States
from zol.session import AUTO, Agent, Skill, load
from zol.session.wishes import Wish
from zol.tasks import tolerance

WIDTH, HEIGHT, CAPTION = 264, 198, 40  # pixels of a tile, and of what is written below it
FPS = 12.5
COLUMNS = 3


def crouch(s: States) -> torch.Tensor:
    """Upright, with the torso at 0.8 m or lower."""
    return tolerance(-s["torso_height"], -0.8, margin=0.4) * (1 + s["torso_upright"]) / 2


@dataclass(frozen=True)
class Behaviour:
    """What is wanted of which model of the zoo: in words, and as a reward."""

    model: str
    words: str
    wish: Wish
    best: float = 1000.0  # the most that an episode can earn


SHOWN = (
    Behaviour("walker", "walk", "walk"),
    Behaviour("walker", "upright, below 0.8 m", crouch),
    Behaviour("cheetah", "run", "run"),
    Behaviour("cheetah", "walk backwards", "walk_backward"),
    Behaviour("quadruped", "get up and walk", "walk"),
    Behaviour("point_mass_maze", "go to the upper right room", "reach_top_right"),
)


@dataclass(frozen=True)
class Shown:
    """A behaviour as it was found and tested."""

    behaviour: Behaviour
    skill: Skill
    earned: report.Interval
    random: float
    pictures: Sequence[NDArray[np.uint8]]  # each [H, W, 3]


def every_task(model: str) -> tuple[Behaviour, ...]:
    """All tasks of the world that a model was trained for."""
    world = load(model).world
    if world is None or not world.tasks:
        raise DataError(f"{model} names no world with tasks, so there is nothing to show")
    return tuple(Behaviour(model, name, name, float(world.episode_length)) for name in world.tasks)


def write_gallery(
    path: Path,
    behaviours: Sequence[Behaviour] = SHOWN,
    method: str = AUTO,
    *,
    seconds: float = 6.0,
    episodes: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Shown]:
    """Adapt, test and film every behaviour, and write all of them into one moving picture."""
    require_webp(path)
    require_place(path, folder=False)
    found: list[Shown] = []
    for name in dict.fromkeys(behaviour.model for behaviour in behaviours):
        own = [behaviour for behaviour in behaviours if behaviour.model == name]
        found += show(
            load(name), own, method, seconds=seconds, episodes=episodes, seed=seed, progress=progress
        )
    write_animation(path, tiled(found), FPS, hold=1 / FPS, quality=60)
    return found


def show(
    agent: Agent,
    behaviours: Sequence[Behaviour],
    method: str = AUTO,
    *,
    seconds: float,
    episodes: int,
    seed: int = 0,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    progress: Progress | None = None,
) -> list[Shown]:
    """The behaviours of one model, adapted together, tested and drawn in this size."""
    world = agent.world
    assert world is not None
    timestep = film.require_drawable(world).control_timestep
    skills = agent.adapt([behaviour.wish for behaviour in behaviours], method, seed=seed, progress=progress)
    tested = agent.evaluate(skills, episodes, seed=seed, progress=progress)
    stride = max(1, round(1 / (FPS * timestep)))
    drawn = film.frames(
        world,
        agent.model,
        [skill.latent for skill in skills],
        generator=torch.Generator().manual_seed(seed),
        steps=round(seconds / timestep),
        stride=stride,
        width=size[0],
        height=size[1],
    )
    films = list(zip(*drawn, strict=True))
    return [
        Shown(behaviour, skill, tested.intervals[k], float(tested.random[k].mean()), films[k])
        for k, (behaviour, skill) in enumerate(zip(behaviours, skills, strict=True))
    ]


def tiled(found: Sequence[Shown]) -> list[NDArray[np.uint8]]:
    """All behaviours side by side, each with its words and what it earns below it."""
    columns = min(COLUMNS, len(found))
    rows = -(-len(found) // columns)
    canvas = np.full((rows * (HEIGHT + CAPTION), columns * WIDTH, 3), PAPER, dtype=np.uint8)
    corners = [((k // columns) * (HEIGHT + CAPTION), (k % columns) * WIDTH) for k in range(len(found))]
    for (y, x), shown in zip(corners, found, strict=True):
        words = f"“{shown.behaviour.words}”"
        canvas = lettering(canvas, words, (x + WIDTH / 2, y + HEIGHT + 4), anchor="mt", size=15)
        earned = f"earns {shown.earned.value:.0f} of {shown.behaviour.best:.0f}"
        note = f"{earned}; random actions {shown.random:.0f}"
        canvas = lettering(
            canvas, note, (x + WIDTH / 2, y + HEIGHT + 23), anchor="mt", size=12, colour=(110,) * 3
        )
    pictures = []
    for k in range(min(len(shown.pictures) for shown in found)):
        picture = canvas.copy()
        for (y, x), shown in zip(corners, found, strict=True):
            picture[y : y + HEIGHT, x : x + WIDTH] = shown.pictures[k]
        pictures.append(picture)
    return pictures


def table(found: Sequence[Shown]) -> report.Cells:
    """What every behaviour earns, for the terminal."""
    rows = [
        [
            f"{s.behaviour.model}: {s.behaviour.words}",
            s.skill.latent.method,
            str(s.earned),
            report.number(s.random),
        ]
        for s in found
    ]
    return ["behaviour", "method", "return [95 %]", "random"], rows
