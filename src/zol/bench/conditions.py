"""What is measured and how: tasks, episodes and seeds of a benchmark, and the models it is run on.

ExORL, as in the paper: 4 domains × 4 tasks, returns of 100 episodes of 1000 steps. Beyond the paper: all
methods start their test episodes from the same states, which no method ever sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from zol import session
from zol.adapt.problem import Problem
from zol.bench.benchmark import tasks_of
from zol.bench.store import UNKNOWN_SEED
from zol.common.config import Config
from zol.common.errors import CheckpointError
from zol.evidence import Evidence
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Model, identity
from zol.worlds.base import World

BASELINE = "fb"  # the method, and the kind of model, that everything is compared with
KIND = "model="  # in the name of a benchmark
EVALUATION_SEED = 2602_01962  # of the start states of test episodes; used for nothing else


class Conditions(Config):
    """Under which a benchmark is run.

    Their name carries every setting that is not the default, so that results never mix.
    """

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
    model: str = BASELINE
    """kind of the models, as ``kind_of`` names it"""

    @property
    def benchmark(self) -> str:
        """The name under which results are stored."""
        own = self.model_dump(exclude={"name", "evaluation_seed"})
        changed = [
            f"{name}={value}" for name, value in own.items() if value != Conditions.model_fields[name].default
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


def kind_of(facts: Mapping[str, Any]) -> str:
    """What kind of model a checkpoint says it is: its entry, and what makes it another than the plain one.

    For instance ``fb``, ``fb/shallow``, ``successor_features/byol_gamma`` or ``td_jepa/symmetric``.
    """
    settings = facts.get("settings", {})
    marks = [str(settings[name]) for name in ("features", "encoder", "actor") if name in settings]
    marks += [name for name in ("symmetric", "sphered") if settings.get(name, False)]
    return "/".join([str(facts.get("model", BASELINE)), *(m for m in marks if m not in ("none", "plain"))])


def split_kind(benchmark: str) -> tuple[str, str]:
    """A stored benchmark's name without the kind of model in it, and that kind."""
    words = benchmark.split()
    kinds = [word.removeprefix(KIND) for word in words if word.startswith(KIND)]
    return " ".join(word for word in words if not word.startswith(KIND)), kinds[0] if kinds else BASELINE


@dataclass(frozen=True)
class BenchedModel:
    """A model under test: its checkpoint, opened and labelled with the benchmark's tasks of its domain."""

    path: str
    without_world: Problem  # without a world to act in
    unrewarded: tuple[str, ...]  # tasks without any reward in the sample, which nothing offline can serve
    pretraining_seed: int
    dataset: str = ""  # what it was trained on, in benchmarks whose rows are datasets
    kind: str = BASELINE  # of model

    @property
    def domain(self) -> str:
        """The benchmark's name of what it was trained on: a world, or one of several datasets of a world."""
        return self.dataset or self.without_world.domain

    @property
    def model(self) -> Model:
        """The model under test."""
        return self.without_world.model

    @property
    def evidence(self) -> Evidence:
        """What methods see."""
        return self.without_world.evidence

    @property
    def dynamics(self) -> LearnedWorld | None:
        """Its learned world, if it has one."""
        return self.without_world.dynamics

    @property
    def identity(self) -> str:
        """Hash of its weights."""
        return identity(self.model)

    def problem(self, world: World | None = None) -> Problem:
        """The problem that methods are given; ``world`` is for those that act while they adapt."""
        return replace(self.without_world, world=world)


def open_model(path: str | Path, conditions: Conditions) -> BenchedModel:
    """Load a checkpoint and label the states that travel with it."""
    agent = session.load(path)
    if agent.world is None:
        raise CheckpointError(f"{path} does not name its world, so the benchmark cannot know its tasks")
    dataset = str(agent.facts.get("dataset", ""))
    dataset = dataset if dataset in tasks_of(conditions.name) else ""
    wanted = conditions.tasks(dataset or agent.world.name)
    problem = agent.problem(wanted, starts=conditions.starts, seed=conditions.seed)
    return BenchedModel(
        path=agent.path,
        without_world=problem,
        unrewarded=tuple(name for name in wanted if name not in problem.evidence.tasks),
        pretraining_seed=int(agent.facts.get("seed", UNKNOWN_SEED)),
        dataset=dataset,
        kind=kind_of(agent.facts),
    )
