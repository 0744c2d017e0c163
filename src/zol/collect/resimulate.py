"""Replay stored actions under the installed simulator, and report how far it drifts from the stored states.

Physics engines change: old data may contain transitions that today's simulator, on which policies are
scored, would never make. Each episode starts again from its first stored simulator state and takes its
stored actions, through the world and therefore with the world's action scaling. The new set is
consistent with this simulator; the drift tells how far it left the old one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from zol.common import provenance
from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.data.dataset import Dataset
from zol.data.writer import building, episode_rows
from zol.worlds.base import World

MILESTONES = (1, 10, 100, 1000)


@dataclass(frozen=True)
class Drift:
    """How far replayed simulator states are from stored ones after some steps."""

    steps: tuple[int, ...]  # after how many steps
    median: tuple[float, ...]  # over episodes, of the largest difference in any entry of the state
    maximum: tuple[float, ...]

    def lines(self) -> list[str]:
        """A small table, one line per number of steps."""
        rows = zip(self.steps, self.median, self.maximum, strict=True)
        return [f"after {step:>4} steps: median {mid:.2e}, max {most:.2e}" for step, mid, most in rows]


def resimulate(
    dataset: Dataset,
    world: World,
    out: str | Path,
    *,
    batch: int = 250,
    progress: Progress | None = None,
) -> tuple[Dataset, Drift]:
    """Replay every episode in ``world``, up to ``batch`` at once, into a new set at ``out``.

    Observations and physics are new; actions, flags and start states stay; further columns that depend on
    states (such as rewards) are dropped, because they belong to the old simulator.
    """
    _check(dataset, world)
    facts = provenance.of_data(
        "resimulate", world=world.name, original=dict(dataset.provenance), replayed=dataset.fingerprint()
    )
    found: dict[int, list[NDArray[np.float64]]] = {}
    bar = Ticker(progress, "replaying", len(dataset), note="steps")
    with building(Path(out), facts, dataset.resets) as writer:
        for numbers in _groups(dataset.lengths, batch):
            old = [dataset.episode(int(number)) for number in numbers]
            obs, physics = _replay(world, old, found)
            writer.append_rows(
                [
                    episode_rows(
                        obs[i],
                        episode["action"][:-1],
                        terminated=bool(episode["terminated"].any()),
                        physics=physics[i],
                    )
                    for i, episode in enumerate(old)
                ]
            )
            bar.advance(int(dataset.lengths[numbers].sum()))
        drift = _summary(found)
        writer.set_provenance(drift=dict(zip(map(str, drift.steps), drift.median, strict=True)))
    return Dataset.open(out), drift


def _replay(
    world: World, old: list[dict[str, NDArray[np.generic]]], found: dict[int, list[NDArray[np.float64]]]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Observations ``[n, L + 1, D]`` and physics ``[n, L + 1, P]`` of n episodes of equal length."""
    stored = np.stack([episode["physics"] for episode in old]).astype(np.float64)
    action = torch.from_numpy(np.stack([episode["action"] for episode in old]))
    n, rows = stored.shape[:2]
    obs = np.zeros((n, rows, world.layout.obs_dim), np.float32)
    physics = np.zeros_like(stored)
    states = world.set_physics(torch.from_numpy(stored[:, 0].copy()))
    for t in range(rows):
        if t:
            states = world.step(action[:, t - 1])
        obs[:, t], physics[:, t] = states.obs.numpy(), world.physics.numpy()
        if t in MILESTONES:
            found.setdefault(t, []).append(np.abs(physics[:, t] - stored[:, t]).max(axis=1))
    return obs, physics


def _groups(lengths: NDArray[np.int64], batch: int) -> Iterator[NDArray[np.int64]]:
    """Runs of neighbouring episodes of equal length, so that the order of episodes stays."""
    for run in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(lengths)) + 1):
        for first in range(0, len(run), batch):
            yield run[first : first + batch]


def _summary(found: dict[int, list[NDArray[np.float64]]]) -> Drift:
    steps = sorted(found)
    joined = [np.concatenate(found[step]) for step in steps]
    return Drift(
        tuple(steps), tuple(float(np.median(d)) for d in joined), tuple(float(d.max()) for d in joined)
    )


def _check(dataset: Dataset, world: World) -> None:
    if "physics" not in dataset.columns:
        raise DataError(
            "this set stores no simulator states ('physics'), so there is nothing to start a replay from: "
            "import it again from a source that has them"
        )
    if dataset.action_dim != world.action_dim or dataset.obs_dim != world.layout.obs_dim:
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, "
            f"{world.name} has {world.layout.obs_dim} and {world.action_dim}: name the world they came from"
        )
