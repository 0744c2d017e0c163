"""Several sets in one: an explorer's transitions beside those of a trained model's policies, for example."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zol.common import provenance
from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.data.dataset import Dataset
from zol.data.writer import building

if TYPE_CHECKING:
    from rich.progress import Progress


def merge(
    sets: Sequence[Dataset], path: Path, *, progress: "Progress | None" = None
) -> tuple[Dataset, list[str]]:
    """All episodes of several sets of one world, one set after another, at a new ``path``.

    Columns that only some of the sets have are left out; their names come second. Provenance keeps that of
    every part. Start states are those drawn from the world if every part has them, and the first states of
    episodes otherwise.
    """
    if len(sets) < 2:
        raise DataError(f"merging takes two sets or more, {len(sets)} was given")
    world = _same("world", [one.provenance.get("world") for one in sets])
    every = {name for one in sets for name in one.columns}
    kept = [name for name in sets[0].columns if all(name in one.columns for one in sets)]
    for name in kept:
        _same(f"shape of '{name}'", [one.columns[name].shape[1:] for one in sets])
    resets = [one.resets for one in sets if one.resets is not None]
    starts = np.concatenate(resets) if len(resets) == len(sets) else None
    parts = [
        {"transitions": len(one), "fingerprint": one.fingerprint(), **_without_bulk(one.provenance)}
        for one in sets
    ]
    facts = {} if world is None else {"world": world}
    bar = Ticker(progress, "writing", sum(one.episodes for one in sets), note="episodes")
    with building(path, provenance.of_data("merge", **facts, parts=parts), starts) as writer:
        for one in sets:
            one.copy_to(writer, np.arange(one.episodes), kept, bar)
    return Dataset.open(path), sorted(every - set(kept))


def _without_bulk(origin: Any) -> dict[str, Any]:
    """Provenance less what is about one set alone: the scale of its coverage."""
    return {name: value for name, value in origin.items() if name != "coverage"}


def _same(what: str, values: Sequence[Any]) -> Any:
    """The value that all sets share."""
    if any(value != values[0] for value in values):
        said = ", ".join(map(str, values))
        raise DataError(f"sets that are merged need the same {what}, these have {said}")
    return values[0]
