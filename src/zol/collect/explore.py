"""Filling a dataset from a world without any reward: by seeking novelty (RND), or at random.

Exploration goes in rounds: all environments play one episode from fresh start states, while the agent
learns from everything seen so far. The set on disk *is* the replay memory, so memory stays small.

A round ends with two writes: its episodes are committed to the set, then the explorer's state (networks,
optimisers, generator) replaces the previous one. A killed explorer plays its last round again, bit for
bit; episodes that were already committed are compared instead of written twice.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.collect.rnd import RNDAgent, RNDConfig
from zol.common import provenance
from zol.common.config import Config
from zol.common.errors import DataError
from zol.common.files import read_metadata, read_tensors, write_tensors
from zol.common.threads import one_torch_thread
from zol.data import coverage, disk
from zol.data.dataset import Dataset
from zol.data.writer import DatasetWriter, episode_rows
from zol.worlds.base import World

STATE = "explorer.safetensors"


class ExploreConfig(Config):
    """What to collect, and how."""

    steps: int = Field(default=1_000_000, ge=1)
    """transitions to collect, rounded up to whole episodes"""
    how: Literal["rnd", "random"] = "rnd"
    """seek novelty, or act uniformly at random"""
    envs: int = Field(default=50, ge=1)
    """environments stepped together; a round is one episode of each"""
    seed: int = 0
    """of start states, actions and networks"""
    resets: int = Field(default=1024, ge=1)
    """start states to store with the set"""
    rnd: RNDConfig = RNDConfig()
    """the agent"""


def explore(
    world: World, out: str | Path, config: ExploreConfig, *, progress: Progress | None = None
) -> Dataset:
    """Collect ``config.steps`` transitions into the set at ``out``; an unfinished run is continued."""
    with one_torch_thread():
        _explore(_Run(world, Path(out), config), progress)
    return Dataset.open(out)


def _explore(run: "_Run", progress: Progress | None) -> None:
    try:
        bar = progress.add_task("exploring", total=run.total_steps, note="") if progress else None
        while run.done < run.episodes:
            for steps, note in run.round():
                if progress and bar is not None:
                    progress.update(bar, completed=steps, note=note)
        run.writer.set_provenance(coverage=run.coverage())
    finally:
        run.writer.close()


class _Run:
    """The mutable part of an exploration and its files."""

    def __init__(self, world: World, out: Path, config: ExploreConfig) -> None:
        self.world, self.out, self.config = world, out, config
        self.length = world.episode_length
        self.episodes = -(-config.steps // self.length)
        self.total_steps = self.episodes * self.length
        self.done = 0  # episodes of finished rounds
        self.generator = torch.Generator().manual_seed(config.seed)
        starts = world.reset(config.resets, torch.Generator().manual_seed(config.seed)).obs
        obs_dim = starts.shape[1]
        self.agent = RNDAgent(obs_dim, world.action_dim, config.rnd, self.generator)
        facts = {"world": world.name, "how": config.how, "seed": config.seed}
        self.writer = DatasetWriter(
            out,
            provenance=provenance.of_data("explore", **facts, config=config.model_dump()),
            resets=starts.float().numpy(),
        )
        try:
            self._resume()
        except BaseException:
            self.writer.close()
            raise

    def round(self) -> Iterator[tuple[int, str]]:
        """Play one episode in every environment; yields the steps so far and a number to watch."""
        n = min(self.config.envs, self.episodes - self.done)
        memory = _Memory(self.out, self.done * self.length, n, self.length, self.world)
        memory.begin(self.world.reset(n, self.generator).obs, self.world.physics)
        self.agent.begin()
        before, owed, novelty = time.perf_counter(), 0.0, torch.zeros(())
        for t in range(self.length):
            steps = self.done * self.length + t * n
            action = self._act(memory.obs[:, t], steps)
            memory.add(t, action, self.world.step(action).obs, self.world.physics)
            if self.config.how == "rnd" and steps >= self.config.rnd.random_steps:
                owed += n / self.config.rnd.steps_per_update
                while owed >= 1:
                    batch = memory.sample(self.config.rnd.batch_size, self.generator)
                    novelty = self.agent.update(*batch, self.generator)
                    owed -= 1
            if t % 10 == 9:
                speed = (t + 1) * n / (time.perf_counter() - before)
                yield steps + n, f"{speed:.0f} steps/s, novelty {float(novelty):.3g}"
        self._commit(memory)

    def _act(self, obs: Tensor, steps: int) -> Tensor:
        if self.config.how == "random" or steps < self.config.rnd.random_steps:
            return 2 * torch.rand(len(obs), self.world.action_dim, generator=self.generator) - 1
        return self.agent.act(obs, self.generator)

    def _commit(self, memory: "_Memory") -> None:
        rows = memory.episodes()
        if self.writer.episodes > self.done:
            known = disk.read_index(self.out)["digest"][self.done : self.done + len(rows)]
            for number, (digest, episode) in enumerate(zip(known, rows, strict=False)):
                if bytes(digest) != disk.episode_digest(episode):
                    raise DataError(
                        f"episode {self.done + number} of {self.out} cannot be repeated exactly: it was made "
                        "with other versions, threads or hardware; continue there, or choose another folder"
                    )
            rows_left = rows[len(known) :]
        else:
            rows_left = rows
        self.writer.append_rows(rows_left)
        self.done += len(rows)
        state = self.agent.state_dict() | {"generator": self.generator.get_state()}
        write_tensors(self.out / STATE, state, {"done": str(self.done)})

    def _resume(self) -> None:
        if self.writer.episodes:
            self._check_belongs()
        path = self.out / STATE
        if path.exists():
            state = read_tensors(path)
            self.generator.set_state(state.pop("generator"))
            self.agent.load_state_dict(state)
            self.done = int(read_metadata(path)["done"])

    def _check_belongs(self) -> None:
        """Refuse to continue another exploration, or something that is none."""
        known, now = self.writer.provenance, self.config.model_dump()
        if known.get("source") != "explore" or known.get("world") != self.world.name:
            raise DataError(
                f"{self.out} holds data from {known.get('source')} ({known.get('world')}), "
                f"not an exploration of {self.world.name}: choose another folder"
            )
        for name, value in known["config"].items():
            if name != "steps" and value != now[name]:
                raise DataError(
                    f"{self.out} was begun with {name}={value}, now {now[name]} is asked for: "
                    "continue with the same value, or choose another folder"
                )

    def coverage(self) -> dict[str, object]:
        """What was covered, beside what as many states of uniformly random actions cover."""
        chance = torch.Generator().manual_seed(self.config.seed)
        data = Dataset.open(self.out)
        envs = max(1, min(self.episodes, coverage.STATES // self.length))
        states = [self.world.reset(envs, chance).obs]
        for _ in range(self.length - 1):
            action = 2 * torch.rand(envs, self.world.action_dim, generator=chance) - 1
            states.append(self.world.step(action).obs)
        random = torch.cat(states).float()
        ours = data.sample(len(random), chance, physics=False).obs
        layout, scale = self.world.layout, coverage.scale_of(random)
        return {
            "here": coverage.coverage(ours, layout, scale),
            "random": coverage.coverage(random, layout, scale),
            "scale": scale.tolist(),
        }


class _Memory:
    """What an agent remembers: finished rounds on disk, and the current one in memory."""

    def __init__(self, path: Path, past_steps: int, n: int, length: int, world: World) -> None:
        self.past = Dataset.open(path) if past_steps else None
        self.past_steps = past_steps  # the set may hold more, if the explorer was killed while committing
        self.n, self.t = n, 0
        self.obs = torch.zeros(n, length + 1, world.layout.obs_dim)
        self.action = torch.zeros(n, length, world.action_dim)
        self.physics: NDArray[np.float64] = np.zeros((n, length + 1, 0))

    def begin(self, obs: Tensor, physics: Tensor) -> None:
        """The start states of the round."""
        self.obs[:, 0] = obs
        self.physics = np.zeros((*self.obs.shape[:2], physics.shape[1]))
        self.physics[:, 0] = physics.numpy()

    def add(self, t: int, action: Tensor, obs: Tensor, physics: Tensor) -> None:
        """The actions of step ``t`` and what followed."""
        self.action[:, t], self.obs[:, t + 1], self.t = action, obs, t + 1
        self.physics[:, t + 1] = physics.numpy()

    def sample(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Observations, actions and next observations of uniformly drawn steps, old and new."""
        steps = torch.randint(self.past_steps + self.n * self.t, (size,), generator=generator)
        new = steps[steps >= self.past_steps] - self.past_steps
        env, t = new % self.n, new // self.n
        fresh = self.obs[env, t], self.action[env, t], self.obs[env, t + 1]
        if self.past is None:
            return fresh
        old = self.past.take(steps[steps < self.past_steps].numpy(), physics=False)
        obs, action, next_obs = (
            torch.cat(pair) for pair in zip((old.obs, old.action, old.next_obs), fresh, strict=True)
        )
        return obs, action, next_obs

    def episodes(self) -> list[dict[str, NDArray[np.generic]]]:
        """The finished round as rows to write."""
        return [
            episode_rows(self.obs[i].numpy(), self.action[i].numpy(), physics=self.physics[i])
            for i in range(self.n)
        ]
