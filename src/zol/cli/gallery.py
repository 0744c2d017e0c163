"""``zol gallery``: the moving picture of the README, made again."""

from pathlib import Path

from zol import report
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.demo.gallery import table, write_gallery


def gallery(
    out: Path = Path("behaviours.webp"), seconds: float = 6.0, episodes: int = 10, seed: int = 0
) -> None:
    """Several behaviours of the zoo's models in one moving picture, from rewards that nobody trained.

    Every behaviour is adapted by the default method of zol adapt, tested in its world, and filmed.

    Args:
        out: the picture, a .webp file
        seconds: length of the film
        episodes: test episodes per behaviour
        seed: of the search, of test episodes and of the film
    """
    with progress_bar() as progress:
        found = write_gallery(out, seconds=seconds, episodes=episodes, seed=seed, progress=progress)
    console = terminal()
    console.print(report.table(table(found), caption=f"{episodes} episodes each, seed {seed}"))
    console.print(f"{out}: {out.stat().st_size / 1e6:.1f} MB", soft_wrap=True, highlight=False)
