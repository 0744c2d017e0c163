"""A model of the zoo on film, for the end of the demo's page: a body with joints."""

from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from zol.common.animation import write_animation
from zol.common.errors import ZolError
from zol.demo.gallery import FPS, Behaviour, show
from zol.session import load

SHOWN = Behaviour("walker", "spin over and over", "spin")
SECONDS, EPISODES, SIZE = 5.0, 4, (440, 330)


@dataclass(frozen=True)
class Film:
    """A moving picture, or why there is none."""

    picture: Path | None
    words: str


def make_film(out: Path, seed: int, progress: Progress | None = None) -> Film:
    """Prompt a model of the zoo with a reward, test it and film it; a machine without MuJoCo says so."""
    try:
        (shown,) = show(
            load(SHOWN.model),
            [SHOWN],
            "plain",
            seconds=SECONDS,
            episodes=EPISODES,
            seed=seed,
            size=SIZE,
            progress=progress,
        )
    except ZolError as error:  # no simulator, or nothing to draw with: the donut's story stands without it
        return Film(None, f"A model of the zoo would be here on film, but {error}")
    words = (
        f"“{SHOWN.words}”: the zoo's {SHOWN.model}, which never saw this reward, given it. It earns "
        f"{shown.earned} of {SHOWN.best:g} in {EPISODES} episodes, random actions {shown.random:.0f}. "
        f"zol adapt {SHOWN.model} --task {SHOWN.wish} --episodes 10"
    )
    return Film(write_animation(out / "film.webp", shown.pictures, FPS, hold=1 / FPS), words)
