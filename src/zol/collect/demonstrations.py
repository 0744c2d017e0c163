"""Demonstrations: states that somebody good visited, without actions; made, read, and drawn by priority.

A demonstration is an episode of a dataset whose actions are zeros and whose provenance says so
(``states_only``). Simulator states come along where the world has them, because training starts episodes in
demonstrated frames.

Motions that are followed badly are shown more often. With e the error of tracking a motion,

    bin = ⌊2 · clip(e, 0.5, 5)⌋,     priority ∝ 1 / (number of motions in the same bin),

so that every bin that has motions is drawn equally often, and a few bad motions are as frequent as many good
ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from zol.common import provenance
from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.data import Dataset
from zol.data.writer import building, episode_rows
from zol.fields import States
from zol.tasks import Task
from zol.worlds.base import World
from zol.worlds.episode import episode

STATES_ONLY = "states_only"
LOWEST, HIGHEST, BINS_PER_UNIT = 0.5, 5.0, 2.0

Behaviour = Callable[[Tensor], Tensor]
"""Actions ``[n, A]`` for observations ``[n, D]``."""


@dataclass(frozen=True)
class Show:
    """What one behaviour is to demonstrate."""

    name: str
    act: Behaviour
    starts: Task | None = None  # whose start states its episodes have; None: the world's own


def record(
    world: World,
    shows: list[Show],
    out: str | Path,
    *,
    episodes: int,
    steps: int,
    skip: int = 0,
    seed: int = 0,
    facts: dict[str, object] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Write what behaviours visit, ``episodes`` of ``steps`` steps each, as a set of states without actions.

    The first ``skip`` steps of every episode are played and not recorded: getting up is not walking.
    """
    if not shows:
        raise DataError("there is nothing to demonstrate: name tasks, or give latents")
    named = {"names": [show.name for show in shows for _ in range(episodes)], STATES_ONLY: True}
    origin = provenance.of_data(
        "demonstrations", world=world.name, seed=seed, skip=skip, **named, **(facts or {})
    )
    bar = Ticker(progress, "recording", len(shows) * (skip + steps))
    with building(Path(out), origin) as writer:
        for show in shows:
            generator = torch.Generator().manual_seed(seed)
            seen, physics, ended = [], [], torch.zeros(episodes, dtype=torch.bool)
            if show.starts is None or show.starts.starts is None:
                states = world.reset(episodes, generator)
            else:
                states = world.set_physics(show.starts.starts(episodes, generator))
            seen.append(states.obs.float())
            physics.append(world.physics)
            lengths = torch.zeros(episodes, dtype=torch.int64)

            def policy(states: States, show: Show = show) -> Tensor:
                return show.act(states.obs.float())

            for step in episode(world, states, policy, skip + steps):
                seen.append(step.states.obs.float())
                physics.append(world.physics)
                lengths += 1 if step.running is None else step.running
                if step.states.terminated is not None:
                    ended |= step.states.terminated
                bar.advance()
            rows = _rows(
                torch.stack(seen, 1), torch.stack(physics, 1), lengths, ended, skip, world.action_dim
            )
            writer.append_rows(rows)
    return Dataset.open(out)


def _rows(
    obs: Tensor, physics: Tensor, lengths: Tensor, ended: Tensor, skip: int, action_dim: int
) -> list[dict[str, np.ndarray]]:
    """Episodes of states ``[n, L + 1, …]`` as rows, from step ``skip`` on; shorter ones are left out."""
    return [
        episode_rows(
            obs[i, skip : length + 1].numpy(),
            np.zeros((length - skip, action_dim), np.float32),
            terminated=bool(ended[i]),
            physics=physics[i, skip : length + 1].numpy(),
        )
        for i, length in enumerate(lengths.tolist())
        if length > skip
    ]


class Demonstrations:
    """A set of motions, from which windows and frames are drawn by the motions' priorities."""

    def __init__(self, dataset: Dataset, window: int) -> None:
        self.dataset, self.window = dataset, window
        if dataset.episodes == 0 or int(dataset.lengths.max()) < window:
            longest = int(dataset.lengths.max(initial=0))
            raise DataError(
                f"no demonstration has {window} steps, the longest has {longest}: record longer ones, or set "
                "a smaller --window"
            )
        self._lengths = torch.from_numpy(dataset.lengths.copy())
        self._first = self._lengths.cumsum(0) - self._lengths  # the number of each motion's first step
        last = dataset.first_rows + dataset.lengths - 1
        self._terminated = torch.from_numpy(np.array(dataset.columns["terminated"][last], dtype=bool))
        self._drawn = self._lengths >= window  # shorter motions have no window
        self.weights = self._drawn.double() / self._drawn.sum()

    def require_fit(self, world: World, *, frames: bool) -> None:
        """Stop if these are motions of another body, or have no simulator states where some are needed."""
        if self.dataset.obs_dim != world.layout.obs_dim:
            raise DataError(
                f"the demonstrations have {self.dataset.obs_dim} observation columns, {world.name} has "
                f"{world.layout.obs_dim}: both must come from the same world"
            )
        if frames and "physics" not in self.dataset.columns:
            raise DataError(
                "the demonstrations hold no simulator states, so no episode can begin in one of them: "
                "set --frame-share 0, or record them with zol demonstrate"
            )

    def prioritise(self, errors: Tensor) -> None:
        """Draw motions by how badly they are tracked, ``[E]``; the rule is at the top."""
        bins = (BINS_PER_UNIT * errors.double().clamp(LOWEST, HIGHEST)).floor()
        bins[~self._drawn] = -1
        _, which, counts = bins.unique(return_inverse=True, return_counts=True)
        weights = self._drawn / counts[which].double()
        self.weights = weights / weights.sum()

    def windows(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """``count`` windows of W states and of the states after them, ``[M, W, D]`` each."""
        motion = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        room = (self._lengths[motion] - self.window + 1).double()
        begin = (torch.rand(count, generator=generator, dtype=torch.float64) * room).long()
        steps = (self._first[motion] + begin).unsqueeze(1) + torch.arange(self.window)
        seen = self.dataset.take(steps.flatten().numpy(), physics=False)
        shape = (count, self.window, -1)
        return seen.obs.reshape(shape), seen.next_obs.reshape(shape)

    def frames(self, count: int, generator: torch.Generator) -> Tensor:
        """Simulator states ``[n, P]`` of frames of motions drawn by priority; none is terminal."""
        motion = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        length = (self._lengths[motion] + ~self._terminated[motion]).double()
        offset = (torch.rand(count, generator=generator, dtype=torch.float64) * length).long()
        rows = torch.from_numpy(self.dataset.first_rows)[motion] + offset
        return torch.from_numpy(np.array(self.dataset.columns["physics"][rows.numpy()], dtype=np.float64))
