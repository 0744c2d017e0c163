"""Data by recipe: scripted behaviour in all environments of a world at once, written round by round.

A round is one episode in every environment. Its randomness comes from a generator of its own, seeded by the
seed of the set and the number of episodes before it, and its episodes are committed together: a run that was
interrupted plays its last round again, bit for bit, and loses nothing else.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.progress import Progress
from torch import Tensor

from zol.collect.recording import RESETS
from zol.collect.rounds import Round
from zol.common import provenance
from zol.common.errors import DataError
from zol.common.interrupts import Stopped
from zol.common.outputs import require_place
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.data import disk
from zol.data.dataset import Dataset
from zol.data.writer import DatasetWriter
from zol.fields import States
from zol.worlds.base import World


class Script(Protocol):
    """Behaviour of n environments that remembers what it is about to do."""

    steps: int
    """Steps of an episode, which may be longer or shorter than those of the world's tasks."""

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Simulator states ``[n, P]`` to begin n episodes in; the generator is used until the next call."""

    def act(self, states: States) -> Tensor:
        """Actions ``[n, A]``."""

    def end(self, states: States) -> Mapping[str, int]:
        """Counts of what was tried and achieved, in the last states of the episodes."""


def collect(
    world: World,
    script: Script,
    out: str | Path,
    *,
    how: str,
    source: str = "script",
    steps: int = 1_000_000,
    envs: int = 50,
    seed: int = 0,
    facts: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Collect ``steps`` transitions in whole episodes into the set at ``out``; an unfinished one goes on.

    ``facts`` are what else decides the script: they stand in the set's provenance, and a set with other ones
    is not continued.
    """
    require_place(out)
    if steps < 1 or envs < 1:
        raise DataError(f"there is nothing to collect: steps={steps}, envs={envs}; both are at least 1")
    with one_torch_thread():
        origin = {
            "source": source,
            "world": world.name,
            "dataset": f"{world.name}-{how}",
            "how": how,
            "seed": seed,
            "envs": envs,
            **(facts or {}),
        }
        run = _Collection(world, script, Path(out), origin, steps, envs, seed)
        total = run.done_steps + max(0, run.missing) * script.steps
        bar = Ticker(progress, f"{world.name}, {how}", total, done=run.done_steps)
        try:
            while run.missing > 0:
                for done, note in run.round():
                    bar.reach(done, note)
            bar.finish(run.done_steps)
        except KeyboardInterrupt as interrupt:
            raise Stopped(run.kept()) from interrupt
        finally:
            run.writer.close()
    return Dataset.open(out)


class _Collection:
    """A set that is being filled."""

    def __init__(
        self,
        world: World,
        script: Script,
        out: Path,
        facts: Mapping[str, Any],
        steps: int,
        envs: int,
        seed: int,
    ) -> None:
        self.world, self.script, self.out, self.envs, self.seed = world, script, out, envs, seed
        self.wanted = steps
        starts = world.reset(RESETS, torch.Generator().manual_seed(seed)).obs
        origin = provenance.of_data(**facts)
        self.writer = DatasetWriter(out, provenance=origin, resets=starts.float().numpy())
        self.done_steps = 0  # transitions of finished rounds
        try:
            if self.writer.episodes:
                self._check_belongs(facts)
                self.done_steps = int(disk.read_index(out)["steps"].sum())
        except BaseException:
            self.writer.close()
            raise

    @property
    def missing(self) -> int:
        """Episodes still to play, if none of them ends early."""
        return -(-(self.wanted - self.done_steps) // self.script.steps)

    def kept(self) -> str:
        """What is left of a collection that ends now, in words."""
        return (
            f"{self.done_steps:,} steps in {self.writer.episodes:,} episodes are saved in {self.out}, the "
            f"unfinished round of {self.envs} episodes is lost (fewer --envs make shorter rounds); the same "
            "command continues"
        )

    def round(self) -> Iterator[tuple[int, str]]:
        """One episode in every environment; yields the steps so far and a number to watch."""
        before, began = self.writer.episodes, time.perf_counter()
        n = min(self.envs, self.missing)
        generator = torch.Generator().manual_seed(hash_seed(self.seed, before))
        first = self.world.set_physics(self.script.begin(n, generator))
        played = Round(self.world, first, self.script.steps)
        for t in played.play(self.script.act):
            if t % 10 == 9:
                speed = played.steps / (time.perf_counter() - began)
                yield self.done_steps + played.steps, f"{speed:.0f} steps/s"
        counts = dict(self.writer.provenance.get("counts", {}))
        for name, count in self.script.end(played.states).items():
            counts[name] = counts.get(name, 0) + count
        self.writer.append_rows(played.episodes())
        self.done_steps += played.steps
        self.writer.set_provenance(counts=counts)

    def _check_belongs(self, facts: Mapping[str, Any]) -> None:
        known = self.writer.provenance
        for name, value in facts.items():
            if known.get(name) != value:
                raise DataError(
                    f"{self.out} was made with {name}={known.get(name)!r}, now {value!r} is asked for: "
                    "go on with the same value, or choose another folder"
                )


def hash_seed(seed: int, episodes: int) -> int:
    """The seed of the round that begins after so many episodes."""
    return (1_000_003 * (seed + 1) + 7919 * episodes) % (2**62)
