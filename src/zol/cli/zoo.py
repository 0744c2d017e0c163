"""``zol zoo``: the models that come with the package, and how a checkpoint becomes one of them."""

from pathlib import Path

import tyro

from zol import checkpoint, report
from zol.checkpoint import zoo
from zol.common.terminal import terminal


def list_() -> None:
    """Show the pretrained models that come with zol, with mean returns over the tasks of their worlds.

    Returns are those of plain prompts, measured while each model was trained, beside random actions; model
    cards have every task.
    """
    rows = []
    for name in zoo.names():
        facts = checkpoint.load(zoo.find(name)).facts
        tested = facts.get("returns") or [{}]
        means = tested[-1].get("return/mean"), tested[0].get("random/mean")
        shown = [report.number(mean) if mean is not None else "–" for mean in means]
        rows.append([name, *(str(facts.get(key, "")) for key in ("world", "model", "steps")), *shown])
    columns = ["name", "world", "model", "steps", "return", "random"]
    report.print_table(terminal(), (columns, rows))


def pack(source: tyro.conf.Positional[Path], out: Path, samples: int = zoo.SAMPLES) -> None:
    """Copy a checkpoint with what test time needs, and no more.

    Args:
        source: folder of a checkpoint, such as a training run
        out: folder of the copy
        samples: labelled states to keep
    """
    folder = zoo.pack(source, out, samples)
    size = sum(file.stat().st_size for file in folder.iterdir())
    terminal().print(f"{folder}: {size / 1e6:.1f} MB", soft_wrap=True, highlight=False)
