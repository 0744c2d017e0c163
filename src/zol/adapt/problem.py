"""What a method of the benchmark is given, and what it gives back.

A method sees the model, a labelled sample of the data and start states: never a test return, and never the
start states of test episodes. Its settings are fixed in advance and part of a result's key, so that changed
settings are new results. Methods that use the environment say so (``offline=False``); only they are given a
world, and the steps they take are reported beside their returns as ``diagnostics["environment_steps"]``.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from zol.adapt.result import Adapted
from zol.common.errors import CheckpointError, ZolError
from zol.evidence import Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Model
from zol.tasks import Task
from zol.worlds.base import World


@dataclass(frozen=True)
class Problem:
    """What a method is asked to solve: all tasks of one domain on one frozen model."""

    model: Model
    evidence: Evidence
    domain: str  # name of the world
    tasks: Mapping[str, Task]  # those of the evidence, by name
    layout: Layout  # what the columns of an observation mean
    world: World | None = None  # only for methods that say they use the environment
    dynamics: LearnedWorld | None = None  # the learned world that came with the checkpoint
    seed: int = 0

    def generator(self, purpose: str) -> torch.Generator:
        """Randomness for one purpose, the same in every run and independent of all other purposes."""
        digest = hashlib.blake2b(f"{self.seed}/{purpose}".encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)

    def environment(self) -> World:
        """The world, for methods that adapt by acting in it."""
        if self.world is None:
            raise ZolError(f"this method acts in {self.domain}, and no world was given: Problem(world=…)")
        return self.world

    def learned_world(self) -> LearnedWorld:
        """The learned world, for methods that rehearse in it."""
        if self.dynamics is None:
            raise CheckpointError(
                "this checkpoint holds no learned world to rehearse in: zol train dynamics --data … --out …"
            )
        return self.dynamics

    @property
    def start(self) -> Tensor:
        """Plain FB's latents ``[T, d]``, where searches begin."""
        return self.evidence.prompt(self.model)


@dataclass(frozen=True)
class Behaviour:
    """What is tested: latents, or a policy where the behaviour of a task is more than one latent."""

    found: Adapted
    policy: Callable[[Tensor], Tensor] | None = None  # [T, E, D] → [T, E, A]


@dataclass(frozen=True)
class Method:
    """A row of the benchmark's tables."""

    adapt: Callable[[Problem], Adapted | Behaviour]
    summary: str  # what it is, in one line
    offline: bool = True  # False: it acts in the environment while it adapts
    rehearses: bool = False  # True: it needs the learned world of a checkpoint
    settings: Mapping[str, object] = field(default_factory=dict)  # fixed in advance; part of a result's key
