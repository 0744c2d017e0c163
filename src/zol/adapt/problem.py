"""What an adaptation method is given, what it gives back, and how a method is described.

A method sees the model, a labelled sample of the data and start states: never a test return, and never the
start states of test episodes. Its settings are fixed in advance and part of a result's key, so that changed
settings are new results. Methods that use the environment say so (``uses="environment"``); only they are
given a world, and the steps they take are reported beside their returns, as
``diagnostics["environment_steps"]``.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import torch
from rich.progress import Progress
from torch import Tensor

from zol.adapt.result import Adapted
from zol.common.config import Config
from zol.common.errors import CheckpointError, ZolError
from zol.evidence import SAMPLES, Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Model
from zol.models.trained_latents import Latents
from zol.prompt import RewardPrompt
from zol.tasks import Task
from zol.value import ValueProblem
from zol.worlds.base import World


@dataclass(frozen=True)
class Problem:
    """What a method is asked to solve: all tasks of one domain on one frozen model."""

    model: Model
    evidence: Evidence
    domain: str  # name of the world; '' if there is none
    tasks: Mapping[str, Task]  # those of the evidence, by name
    layout: Layout  # what the columns of an observation mean
    world: World | None = None  # only for methods that say they use the environment
    dynamics: LearnedWorld | None = None  # the learned world that came with the checkpoint
    seed: int = 0
    prompt: RewardPrompt = "correlation"  # how this kind of model is prompted
    episode_length: int | None = None  # of its world, where that is known
    dataset: str = ""  # what the model was trained on, where a world has several named sets
    trained: Latents | None = None  # latents as it met them in training, where that is known
    progress: Progress | None = None  # where a method that takes longer shows how far it is

    def generator(self, purpose: str) -> torch.Generator:
        """Randomness for one purpose, the same in every run and independent of all other purposes."""
        digest = hashlib.blake2b(f"{self.seed}/{purpose}".encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)

    def environment(self) -> World:
        """The world, for methods that adapt by acting in it."""
        if self.world is None:
            raise ZolError(
                f"this method acts in {self.domain or 'the environment'}, and no world was given: "
                "Problem(world=…)"
            )
        return self.world

    def learned_world(self) -> LearnedWorld:
        """The learned world, for methods that rehearse in it."""
        if self.dynamics is None:
            raise CheckpointError(
                "this checkpoint holds no learned world to rehearse in: zol train dynamics --data … --out …, "
                "or choose another method"
            )
        return self.dynamics

    @property
    def ordered_tasks(self) -> list[Task]:
        """The tasks in the order of the evidence's rows."""
        return [self.tasks[name] for name in self.evidence.tasks]

    def value_problem(self, purpose: str = "value") -> ValueProblem:
        """What estimators of a latent's value may look at (zol.value); ``purpose`` names their randomness."""
        return ValueProblem(
            model=self.model,
            evidence=self.evidence,
            tasks=self.ordered_tasks,
            layout=self.layout,
            learned_world=self.dynamics,
            episode_length=self.episode_length,
            generator=self.generator(purpose),
        )

    @property
    def start(self) -> Tensor:
        """The model's own prompt of every task ``[T, d]``, where searches begin; for FB that is E[B r]."""
        return self.evidence.prompt(self.model, self.prompt)


@dataclass(frozen=True)
class Behaviour:
    """What is tested: latents, or a policy where the behaviour of a task is more than one latent."""

    found: Adapted
    policy: Callable[[Tensor], Tensor] | None = None  # [T, E, D] → [T, E, A]


class NoSettings(Config):
    """Settings of a method that has none."""


Settings = TypeVar("Settings", bound=Config)
Uses = Literal["offline", "environment", "weights"]


@dataclass(frozen=True)
class Method(Generic[Settings]):
    """A way to adapt, as the registry, the command line and the benchmark know it.

    ``uses`` is the class of a method, and classes are never mixed in one ranking without saying so:
    ``"offline"`` methods see stored data alone, ``"environment"`` ones act while they adapt, and
    ``"weights"`` ones change the pretrained networks.

    ``revision`` counts corrections that change a method's numbers. From 2 on it is part of a result's key, so
    that results of before and after never mix; ``correction`` says what happened, and a report puts that
    beside results of an earlier revision.

    ``single_latent`` says beforehand whether a task's behaviour is one latent, which can be saved and
    exported. A method that returns a :class:`Behaviour` with a policy says False.
    """

    adapt: Callable[[Problem, Settings], Adapted | Behaviour]
    settings: Settings = field(default_factory=NoSettings)  # type: ignore[assignment]
    uses: Uses = "offline"
    needs_learned_world: bool = False
    suits: Callable[[Layout], bool] | None = None  # observations that it can work with; None: all
    single_latent: bool = True
    revision: int = 1
    correction: str = ""
    samples: int = SAMPLES  # transitions that it wants, where somebody brings data
    estimator: str = "ratio"  # of zol.value: what makes the estimates that it reports
    summary: str = ""  # in one line, of methods that the registry has no line for

    @property
    def offline(self) -> bool:
        """Whether it adapts without acting in the environment."""
        return self.uses != "environment"

    def key(self, settings: Config | None = None) -> dict[str, Any]:
        """What decides its numbers beside the problem: settings (its own unless given) and revision."""
        found = (settings or self.settings).model_dump()
        return found if self.revision == 1 else found | {"revision": self.revision}
