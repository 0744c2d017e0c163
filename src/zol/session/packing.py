"""A checkpoint as it travels: small, and with what it earns on its card."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.progress import Progress

from zol.checkpoint import zoo
from zol.common import provenance
from zol.common.errors import CheckpointError
from zol.common.outputs import require_place
from zol.session.agent import PLAIN, load


def pack(
    source: str | Path,
    out: str | Path,
    samples: int = zoo.SAMPLES,
    *,
    episodes: int = 0,
    seed: int = 1,
    film: str = "",
    progress: Progress | None = None,
) -> Path:
    """Copy a checkpoint with what test time needs; with ``episodes``, test that copy and say so on its card.

    The copy itself is tested, prompted from the states that it keeps: fewer states are another prompt.
    ``seed`` is that of the start states. ``film`` is the address of a moving picture that the card shows.
    """
    facts = {"film": film} if film else {}
    if not episodes:
        return zoo.pack(source, out, samples, facts=facts)
    require_place(out)
    with TemporaryDirectory() as folder:
        small = zoo.pack(source, Path(folder) / "small", samples)
        tested = _tested(small, episodes, seed, progress)
    return zoo.pack(source, out, samples, facts=facts | {"tested": tested})


def _tested(folder: Path, episodes: int, seed: int, progress: Progress | None) -> Mapping[str, Any]:
    """What plain prompts earn on every task of the world, and how that was measured."""
    agent = load(folder)
    if agent.world is None or not agent.tasks:
        raise CheckpointError(
            "this checkpoint names no world with tasks, so it cannot be tested: pack it with --episodes 0"
        )
    found = agent.evaluate(agent.adapt(None, PLAIN, seed=seed), episodes, seed=seed, progress=progress)
    known = provenance.of_numbers()
    cells = zip(found.tasks, found.intervals, found.random.mean(1).tolist(), strict=True)
    return {
        "episodes": episodes,
        "seed": seed,
        **{name: known[name] for name in ("command", "commit", "cpu")},
        "returns": {
            task: {"mean": earned.value, "low": earned.low, "high": earned.high, "random": chance}
            for task, earned, chance in cells
        },
    }
