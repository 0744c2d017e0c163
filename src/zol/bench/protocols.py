"""What is measured: domains, tasks, episodes and seeds of a benchmark, and the models it is run on.

ExORL, as in the paper: 4 domains × 4 tasks, returns of 100 episodes of 1000 steps. Beyond the paper: all
methods start their test episodes from the same states, which no method ever sees.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field

from zol import checkpoint
from zol.adapt.problem import Problem
from zol.bench.store import UNKNOWN_SEED
from zol.bench.unseen import tasks_of
from zol.checkpoint import zoo
from zol.common.config import Config
from zol.common.errors import CheckpointError
from zol.evidence import Evidence
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Model, identity
from zol.worlds import ALIASES, find_task, make
from zol.worlds.base import World

EVALUATION_SEED = 2602_01962  # of the start states of test episodes; used for nothing else


class Protocol(Config):
    """A benchmark. Its name carries every setting that is not the default, so that results never mix."""

    name: str = "exorl"
    """of the benchmark"""
    episodes: int = Field(default=100, ge=1)
    """paired test episodes per task"""
    starts: int = Field(default=256, ge=1)
    """start states that a method may use"""
    steps: int | None = Field(default=None, ge=1)
    """length of an episode; the world's own if not given"""
    seed: int = Field(default=0, ge=0)
    """of what is random in methods"""
    evaluation_seed: int = Field(default=EVALUATION_SEED, ge=0)
    """of the start states of test episodes"""

    @property
    def benchmark(self) -> str:
        """The name under which results are stored."""
        own = self.model_dump(exclude={"name", "evaluation_seed"})
        changed = [
            f"{name}={value}" for name, value in own.items() if value != Protocol.model_fields[name].default
        ]
        return " ".join([self.name, *changed])

    def tasks(self, domain: str) -> tuple[str, ...]:
        """The benchmark's tasks of a domain; an error names the domains it has."""
        known = tasks_of(self.name)
        if domain not in known:
            raise CheckpointError(
                f"this model was trained on {domain}, which is no domain of {self.name}: "
                f"it has {', '.join(known)}"
            )
        return known[domain]

    def test_generator(self) -> torch.Generator:
        """For start states of test episodes."""
        return torch.Generator().manual_seed(self.evaluation_seed)


@dataclass(frozen=True)
class Subject:
    """A model under test: its checkpoint, opened and labelled with the tasks of its domain."""

    path: str
    domain: str
    model: Model
    evidence: Evidence
    silent: tuple[str, ...]  # tasks without any reward in the sample, which nothing offline can serve
    pretraining_seed: int
    dynamics: LearnedWorld | None

    @property
    def identity(self) -> str:
        """Hash of its weights."""
        return identity(self.model)

    def problem(self, protocol: Protocol, world: World | None) -> Problem:
        """The problem that methods are given."""
        home = make(self.domain)
        tasks = {name: find_task(home, name) for name in self.evidence.tasks}
        return Problem(
            model=self.model,
            evidence=self.evidence,
            domain=self.domain,
            tasks=tasks,
            layout=home.layout,
            world=world,
            dynamics=self.dynamics,
            seed=protocol.seed,
        )


def open_subject(path: str | Path, protocol: Protocol) -> Subject:
    """Load a checkpoint and label the states that travel with it."""
    path = zoo.find(path)
    loaded = checkpoint.load(path)
    name = str(loaded.facts.get("world", ""))
    domain = ALIASES.get(name, name)
    if not domain:
        raise CheckpointError(f"{path} does not name its world, so the benchmark cannot know its tasks")
    wanted = protocol.tasks(domain)
    world = make(domain)
    labelled = Evidence.label(
        loaded.sample(world.layout),
        [find_task(world, task) for task in wanted],
        loaded.prompt["starts"][: protocol.starts],
        str(loaded.facts.get("data", "")),
    )
    evidence, silent = labelled.audible()
    return Subject(
        path=str(path),
        domain=domain,
        model=loaded.model,
        evidence=evidence,
        silent=tuple(silent),
        pretraining_seed=int(loaded.facts.get("seed", UNKNOWN_SEED)),
        dynamics=loaded.dynamics,
    )
