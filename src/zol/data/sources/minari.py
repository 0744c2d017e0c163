"""Minari datasets, read into ours and written from ours.

Minari reads its files itself. Before it does, they are checked here: HDF5 whose data lie in other files, or
that unpacks to far more than it is, is refused, and so is a set that does not name its spaces, because Minari
would then make the environment that the set names, which runs code.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from zol.common import provenance
from zol.common.errors import DataError
from zol.common.extras import require
from zol.common.progress import Ticker
from zol.common.reading import parse_json, read_json
from zol.data.dataset import Dataset
from zol.data.sources.hdf5 import require_own_data
from zol.data.writer import building, episode_rows

EPISODES = 10**7  # of a set whose files cannot be asked
ENTRIES = 10**6  # of one observation
Scaling = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def import_minari(
    name: str,
    out: str | Path,
    *,
    world: str | None = None,
    fetch: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Convert the Minari dataset ``name`` into a dataset at ``out``.

    Dictionary observations are joined in the order of their keys; bounded actions are scaled to [−1, 1],
    as everywhere in zol. ``fetch`` downloads the set if it is not on this machine.
    """
    source = _load(name, fetch)
    scaled, note = _scaling(source.action_space)
    facts = provenance.of_data("minari", world=world, file=name, actions=note, episodes=source.total_episodes)
    bar = Ticker(progress, "importing", source.total_episodes, note="episodes")
    stream = _episodes(source, scaled, name)
    with building(Path(out), facts) as writer:
        while part := list(islice(stream, 50)):
            writer.append_rows(part)
            bar.advance(len(part))
    return Dataset.open(out)


def export_minari(dataset: Dataset, name: str, **facts: Any) -> None:
    """Write a dataset as the Minari dataset ``name`` (in Minari's own folder).

    Rewards are those of a column ``reward``, or zeros. ``facts`` go to Minari: author, description and such.
    """
    minari = _minari()
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for number in range(dataset.episodes):
        rows = dataset.episode(number)
        steps = int(dataset.lengths[number])
        reward = rows.get("reward", np.zeros(steps + 1))
        buffers.append(
            EpisodeBuffer(
                observations=np.array(rows["obs"]),
                actions=np.array(rows["action"][:steps]),
                rewards=np.array(reward[:steps], dtype=np.float64).reshape(steps, -1)[:, 0].tolist(),
                terminations=rows["terminated"][:steps].tolist(),
                truncations=rows["truncated"][:steps].tolist(),
            )
        )
    minari.create_dataset_from_buffers(
        dataset_id=name,
        buffer=buffers,
        observation_space=Box(-np.inf, np.inf, (dataset.obs_dim,), np.float32),
        action_space=Box(-1.0, 1.0, (dataset.action_dim,), np.float32),
        **facts,
    )


def _minari() -> Any:
    return require("minari", "minari", "reading and writing Minari datasets")


def _load(name: str, fetch: bool) -> Any:
    minari = _minari()
    from minari.storage import hosting
    from minari.storage.datasets_root_dir import get_dataset_path

    folder = Path(get_dataset_path(name)) / "data"
    if not folder.exists():
        if not fetch:
            raise DataError(f"there is no Minari dataset '{name}' on this machine: minari download {name}")
        try:
            hosting.download_dataset(name)
        except Exception as error:  # whatever the network library of the day raises
            raise DataError(
                f"Minari cannot download '{name}' ({_line(error)}): look up its exact name (minari list "
                "remote), or on a machine without internet copy its folder from another one's "
                "~/.minari/datasets"
            ) from error
    _require_safe(folder)
    try:
        return minari.load_dataset(name)
    except Exception as error:
        raise DataError(
            f"the Minari dataset '{name}' cannot be opened ({_line(error)}): is {folder} whole?"
        ) from error


def _require_safe(folder: Path) -> None:
    """Refuse a set that would make Minari read other files, fill the memory or run code."""
    where = folder / "metadata.json"
    facts = read_json(where, DataError)
    for name in ("observation_space", "action_space"):
        if not isinstance(facts.get(name), str):
            raise DataError(
                f"{where} has no {name}, and Minari would make the environment to ask it, which runs "
                "code that the set names: write the space into this file, as minari.serialization does"
            )
        _require_small(parse_json(facts[name], f"the {name} in {where}", DataError), f"{name} in {where}")
    claimed, most = facts.get("total_episodes"), EPISODES
    if facts.get("data_format") == "hdf5":
        most = len(require_own_data(folder / "main_data.hdf5"))
    if not isinstance(claimed, int) or not 0 < claimed <= most:
        raise DataError(f"{where} has total_episodes {claimed!r:.80}; expected a number from 1 to {most}")


def _require_small(space: Any, where: str) -> None:
    """A space whose bounds are one number and whose shape is large would be spread out in memory."""
    parts = space.values() if isinstance(space, dict) else space if isinstance(space, list) else ()
    shape = space.get("shape") if isinstance(space, dict) else None
    if isinstance(shape, list) and not (
        all(isinstance(size, int) and size >= 0 for size in shape) and math.prod(shape) <= ENTRIES
    ):
        raise DataError(f"the {where} has shape {shape!r:.80}; expected at most {ENTRIES} entries")
    for part in parts:
        _require_small(part, where)


def _episodes(source: Any, scaled: Scaling, name: str) -> Iterator[dict[str, NDArray[Any]]]:
    try:
        for episode in source.iterate_episodes():
            yield _rows(episode, scaled)
    except DataError:
        raise
    except Exception as error:  # of Minari and of everything below it
        raise DataError(
            f"an episode of the Minari dataset '{name}' cannot be read ({_line(error)}): get the set again"
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _scaling(space: Any) -> tuple[Scaling, str]:
    """From the set's actions to [−1, 1], and a sentence about it."""
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or len(space.shape) != 1:
        raise DataError(f"zol needs vectors of continuous actions; this dataset has {space}")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return lambda action: action, "as stored (no bounds given)"
    low, high = low.astype(np.float64), high.astype(np.float64)
    middle, half = (high + low) / 2, (high - low) / 2
    # Simulators clip what lies outside the bounds, and so do we.
    return (
        lambda action: ((action - middle) / half).clip(-1.0, 1.0),
        f"scaled to [-1, 1] from {low.tolist()} … {high.tolist()}",
    )


def _rows(episode: Any, scaled: Scaling) -> dict[str, NDArray[Any]]:
    obs = np.concatenate(list(_parts(episode.observations, len(episode.actions) + 1)), axis=1)
    return episode_rows(
        obs,
        scaled(np.asarray(episode.actions, dtype=np.float64)),
        terminated=bool(episode.terminations[-1]),
        reward=np.asarray(episode.rewards, np.float32),
    )


def _parts(observations: Any, rows: int) -> Iterable[NDArray[Any]]:
    """The leaves of (possibly nested dictionary) observations as tables."""
    if isinstance(observations, dict):
        for key in sorted(observations):
            yield from _parts(observations[key], rows)
    else:
        yield np.asarray(observations).reshape(rows, -1)
