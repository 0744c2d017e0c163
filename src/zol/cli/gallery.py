"""``zol gallery``: behaviours in one moving picture, the README's or all of one model."""

from pathlib import Path

import tyro

from zol import report
from zol.checkpoint.zoo import names
from zol.common.errors import DataError
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.demo.gallery import SHOWN, every_task, table, write_gallery
from zol.session import AUTO


def gallery(
    model: tyro.conf.Positional[str | None] = None,
    zoo: bool = False,
    out: Path = Path("behaviours.webp"),
    method: str = AUTO,
    seconds: float = 6.0,
    episodes: int = 10,
    seed: int = 0,
) -> None:
    """Several behaviours in one moving picture: of the zoo's models, or every task of one model.

    Every behaviour is adapted by the default method of zol adapt, tested in its world, and filmed.

    Args:
        model: a checkpoint, or a name of the zoo; without one, the six behaviours of the README
        zoo: every task of every model of the zoo instead, in one picture per model: --out is their folder
        out: the picture, a .webp file
        method: how latents are found (zol adapt --help lists the methods)
        seconds: length of the film
        episodes: test episodes per behaviour
        seed: of the search, of test episodes and of the film
    """
    if zoo and model is not None:
        raise DataError(f"--zoo shows all models of the zoo: leave {model} out, or --zoo")
    if zoo and out.suffix:
        raise DataError(f"--zoo writes a picture per model, so --out is a folder, got {out}")
    wanted = {out / f"{name}.webp": name for name in names()} if zoo else {out: model}
    for path, name in wanted.items():
        with progress_bar() as progress:
            found = write_gallery(
                path,
                SHOWN if name is None else every_task(name),
                method,
                seconds=seconds,
                episodes=episodes,
                seed=seed,
                progress=progress,
            )
        console = terminal()
        console.print(report.table(table(found), caption=f"{episodes} episodes each, seed {seed}"))
        console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", soft_wrap=True, highlight=False)
