"""Filling a dataset from a world without any reward: by seeking novelty (RND), or at random.

Exploration goes in rounds: all environments play one episode from fresh start states, while the agent
learns from everything seen so far. The set on disk *is* the replay memory, so memory stays small. Episodes
that reach a terminal state are shorter than others, so a world with terminal states takes more rounds.

A round ends with two writes: its episodes are committed to the set, then the explorer's state (networks,
optimisers, generator) replaces the previous one. A killed explorer plays its last round again, bit for
bit; episodes that were already committed are compared instead of written twice.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.collect.memory import RoundMemory
from zol.collect.recording import append_or_compare
from zol.collect.rnd import RNDAgent, RNDConfig
from zol.collect.rounds import acting, noise_levels, partly_random
from zol.common import provenance
from zol.common.config import Config
from zol.common.errors import DataError
from zol.common.interrupts import Stopped
from zol.common.outputs import require_place
from zol.common.progress import Ticker
from zol.common.tensors import counted, read_metadata, read_tensors, write_tensors
from zol.common.threads import one_torch_thread
from zol.data import coverage, disk
from zol.data.dataset import Dataset
from zol.data.writer import DatasetWriter
from zol.fields import States
from zol.models.optimisation import restore_generator
from zol.worlds.base import World
from zol.worlds.episode import Policy, episode, random_policy

STATE = "explorer.safetensors"


class ExploreConfig(Config):
    """What to collect, and how."""

    steps: int = Field(default=1_000_000, ge=1)
    """transitions to collect; the last episodes are played to their end"""
    how: Literal["rnd", "random"] = "rnd"
    """seek novelty, or act uniformly at random"""
    envs: int = Field(default=50, ge=1)
    """environments stepped together; a round is one episode of each"""
    seed: int = 0
    """seed of start states, actions and networks"""
    resets: int = Field(default=1024, ge=1)
    """start states to store with the set"""
    noise_range: tuple[float, float] | None = Field(default=None, strict=False)
    """standard deviations of the noise in the first and in the last environment; None: the agent's in all"""
    random_share: float = Field(default=0.0, ge=0, lt=1)
    """share of the environments that act uniformly at random, while the agent learns from all of them"""
    rnd: RNDConfig = RNDConfig()
    """settings of the agent that seeks novelty"""


def explore(
    world: World, out: str | Path, config: ExploreConfig, *, progress: Progress | None = None
) -> Dataset:
    """Collect ``config.steps`` transitions into the set at ``out``; an unfinished run is continued."""
    require_place(out)
    with one_torch_thread():
        _explore(_Run(world, Path(out), config), progress)
    return Dataset.open(out)


def _explore(run: "_Run", progress: Progress | None) -> None:
    try:
        bar = Ticker(progress, "exploring", run.expected_steps)
        while run.missing_episodes > 0:
            for steps, note in run.round():
                bar.reach(steps, note)
        bar.finish(run.done_steps)
        run.writer.set_provenance(coverage=run.coverage())
    except KeyboardInterrupt as interrupt:
        raise Stopped(run.kept()) from interrupt
    finally:
        run.writer.close()


class _Run:
    """The mutable part of an exploration and its files."""

    def __init__(self, world: World, out: Path, config: ExploreConfig) -> None:
        self.world, self.out, self.config = world, out, config
        self.length = world.episode_length
        self.done, self.done_steps = 0, 0  # episodes of finished rounds, and their transitions
        self.unsaved = 0  # transitions of the round that is being played
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

    @property
    def missing_episodes(self) -> int:
        """Episodes still to play, if none of them ends early."""
        return -(-(self.config.steps - self.done_steps) // self.length)

    @property
    def expected_steps(self) -> int:
        """Transitions at the end, if no further episode ends early."""
        return self.done_steps + max(0, self.missing_episodes) * self.length

    def kept(self) -> str:
        """What is left of an exploration that ends now, in words."""
        unfinished = (
            f"{self.unsaved:,} steps of the unfinished round are lost (a round is one episode of each of "
            f"--envs {self.config.envs}: fewer of them make shorter rounds)"
        )
        kept = f"{self.done_steps:,} steps in {self.done:,} episodes are saved in {self.out}"
        return f"{kept}, {unfinished if self.unsaved else 'nothing is lost'}; the same command continues"

    def round(self) -> Iterator[tuple[int, str]]:
        """Play one episode in every environment; yields the steps so far and a number to watch."""
        c, n = self.config, min(self.config.envs, self.missing_episodes)
        memory = RoundMemory(self.out, self.done_steps, self.world, self.world.reset(n, self.generator))
        self.agent.begin()
        before, owed, novelty = time.perf_counter(), 0.0, torch.zeros(())
        chance, seeking = random_policy(self.world, self.generator), self._seeking(n)

        def policy(states: States) -> Tensor:
            at_random = self._at_random(self.done_steps + memory.steps)
            return chance(states) if at_random else seeking(states)

        steps_before = self.done_steps
        for t in memory.play(policy):
            self.unsaved = memory.steps
            steps = self.done_steps + memory.steps
            if c.how == "rnd" and steps_before >= c.rnd.random_steps:
                owed += (steps - steps_before) / c.rnd.steps_per_update
                while owed >= 1:
                    batch = memory.sample(c.rnd.batch_size, self.generator, c.rnd.n_step)
                    novelty = self.agent.update(batch, self.generator)
                    owed -= 1
            steps_before = steps
            if t % 10 == 9:
                speed = memory.steps / (time.perf_counter() - before)
                yield steps, f"{speed:.0f} steps/s, novelty {float(novelty):.3g}"
        self._commit(memory)

    def _seeking(self, n: int) -> Policy:
        """The agent with its noise, and uniform actions in some of n environments if that is asked for."""
        c, seeking = self.config, acting(n, self.config.random_share)
        noise = None if c.noise_range is None else noise_levels(c.noise_range, seeking)

        def act(states: States) -> Tensor:
            return self.agent.act(states.obs[:seeking].float(), self.generator, noise)

        return partly_random(act, self.world, seeking, self.generator)

    def _at_random(self, steps: int) -> bool:
        """Whether the next action is uniformly random, after so many steps."""
        return self.config.how == "random" or steps < self.config.rnd.random_steps

    def _commit(self, memory: RoundMemory) -> None:
        rows = memory.episodes()
        append_or_compare(self.writer, self.out, self.done, rows)
        self.done, self.done_steps = self.done + len(rows), self.done_steps + memory.steps
        self.unsaved = 0
        state = self.agent.state_dict() | {"generator": self.generator.get_state()}
        write_tensors(self.out / STATE, state, {"done": str(self.done)})

    def _resume(self) -> None:
        if self.writer.episodes:
            self._check_belongs()
        path = self.out / STATE
        if path.exists():
            state, done = read_tensors(path), counted(read_metadata(path, ("done",)), "done", path)
            if done > self.writer.episodes:
                raise DataError(f"{path} is from after episode {done}; this set has {self.writer.episodes}")
            restore_generator(self.generator, state, path)
            self.agent.load_state_dict({n: v for n, v in state.items() if n != "generator"})
            self.done = done
            self.done_steps = int(disk.read_index(self.out)["steps"][: self.done].sum())

    def _check_belongs(self) -> None:
        """Refuse to continue another exploration, or something that is none."""
        known = self.writer.provenance
        if known.get("source") != "explore" or known.get("world") != self.world.name:
            raise DataError(
                f"{self.out} holds data from {known.get('source')} ({known.get('world')}), "
                f"not an exploration of {self.world.name}: choose another folder"
            )
        before = ExploreConfig(**known["config"]).model_dump()  # settings that are newer than the set
        now = self.config.model_dump()
        for name, value in before.items():
            if name != "steps" and value != now[name]:
                raise DataError(
                    f"{self.out} was begun with {name}={value}, now {now[name]} is asked for: "
                    "continue with the same value, or choose another folder"
                )

    def coverage(self) -> dict[str, object]:
        """What was covered, beside what as many states of uniformly random actions cover."""
        chance = torch.Generator().manual_seed(self.config.seed)
        data = Dataset.open(self.out)
        episodes = -(-self.config.steps // self.length)
        envs = max(1, min(episodes, coverage.STATES // self.length))
        first = self.world.reset(envs, chance)
        steps = episode(self.world, first, random_policy(self.world, chance), self.length - 1)
        random = torch.cat([first.obs, *(step.those(step.states.obs) for step in steps)]).float()
        ours = data.sample(len(random), chance, physics=False).obs
        layout, scale = self.world.layout, coverage.scale_of(random)
        return {
            "here": coverage.coverage(ours, layout, scale),
            "random": coverage.coverage(random, layout, scale),
            "scale": scale.tolist(),
        }
