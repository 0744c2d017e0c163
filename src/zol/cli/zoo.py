"""``zol zoo``: the models that come with the package, and how a checkpoint becomes one of them."""

from pathlib import Path
from statistics import fmean

import tyro

from zol import checkpoint, report
from zol.checkpoint import zoo
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.session import packing


def list_() -> None:
    """Show the pretrained models that come with zol, with mean returns over the tasks of their worlds.

    Returns are those of plain prompts beside random actions, of the model as it is stored where it was tested
    so, else of its training; model cards have every task.
    """
    rows = []
    for name in zoo.names():
        facts = checkpoint.load(zoo.find(name)).facts
        earned = zoo.returns(facts).values()  # (of the model, of random actions) per task
        shown = [report.number(fmean(of_one)) for of_one in zip(*earned, strict=True)] or ["–", "–"]
        rows.append([name, *(str(facts.get(key, "")) for key in ("world", "model", "steps")), *shown])
    columns = ["name", "world", "model", "steps", "return", "random"]
    report.print_table(terminal(), (columns, rows))


def pack(
    source: tyro.conf.Positional[Path],
    out: Path,
    samples: int = zoo.SAMPLES,
    episodes: int = 0,
    seed: int = 1,
    film: str = "",
) -> None:
    """Copy a checkpoint with what test time needs, and no more.

    Args:
        source: folder of a checkpoint, such as a training run, or a name of the zoo
        out: folder of the copy
        samples: labelled states to keep
        episodes: test episodes per task whose returns, with intervals, go onto the card; 0 tests nothing
        seed: of the start states of these episodes
        film: moving picture that the card shows (zol gallery), by its address as seen from the card
    """
    with progress_bar() as progress:
        folder = packing.pack(
            source, out, samples, episodes=episodes, seed=seed, film=film, progress=progress
        )
    size = sum(file.stat().st_size for file in folder.iterdir())
    terminal().print(f"{folder}: {size / 1e6:.1f} MB", soft_wrap=True, highlight=False)
