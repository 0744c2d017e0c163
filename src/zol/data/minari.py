"""Minari datasets, read into ours and written from ours."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from zol import provenance
from zol.data.dataset import Dataset
from zol.data.writer import building, episode_rows
from zol.errors import DataError, MissingExtra


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
    minari = _minari()
    try:
        source = minari.load_dataset(name, download=fetch)
    except (FileNotFoundError, ValueError, KeyError, OSError) as error:
        raise DataError(
            f"there is no Minari dataset '{name}' on this machine: minari download {name}"
        ) from error
    scale, note = _scaling(source.action_space)
    facts = provenance.of_data("minari", world=world, file=name, actions=note, episodes=source.total_episodes)
    bar = progress.add_task("importing", total=source.total_episodes, note="episodes") if progress else None
    stream = iter(source.iterate_episodes())
    with building(Path(out), facts) as writer:
        while part := list(islice(stream, 50)):
            writer.append_rows([_rows(episode, scale) for episode in part])
            if progress and bar is not None:
                progress.advance(bar, len(part))
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
    try:
        import minari
    except ModuleNotFoundError as error:
        raise MissingExtra("minari", "minari", "reading and writing Minari datasets") from error
    return minari


def _scaling(space: Any) -> tuple[tuple[NDArray[Any], NDArray[Any]], str]:
    """Middle and half width of the action bounds, and a sentence about what is done with them."""
    low, high = getattr(space, "low", None), getattr(space, "high", None)
    if low is None or high is None or len(space.shape) != 1:
        raise DataError(f"zol needs vectors of continuous actions; this dataset has {space}")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return (np.zeros_like(low), np.ones_like(low)), "as stored (no bounds given)"
    low, high = low.astype(np.float64), high.astype(np.float64)
    return ((high + low) / 2, (high - low) / 2), f"scaled to [-1, 1] from {low.tolist()} … {high.tolist()}"


def _rows(episode: Any, scale: tuple[NDArray[Any], NDArray[Any]]) -> dict[str, NDArray[Any]]:
    obs = np.concatenate(list(_parts(episode.observations, len(episode.actions) + 1)), axis=1)
    action = (np.asarray(episode.actions, dtype=np.float64) - scale[0]) / scale[1]
    return episode_rows(
        obs, action, terminated=bool(episode.terminations[-1]), reward=np.asarray(episode.rewards, np.float32)
    )


def _parts(observations: Any, rows: int) -> Iterable[NDArray[Any]]:
    """The leaves of (possibly nested dictionary) observations as tables."""
    if isinstance(observations, dict):
        for key in sorted(observations):
            yield from _parts(observations[key], rows)
    else:
        yield np.asarray(observations).reshape(rows, -1)
