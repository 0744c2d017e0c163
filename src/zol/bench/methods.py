"""Every method of the benchmark under one signature: a problem in, latents out.

A method sees the model, a labelled sample of the data and start states: never a test return, and never the
start states of test episodes. Its settings are fixed in advance and part of a result's key, so that changed
settings are new results. Methods that use the environment say so (``offline=False``); only they are given a
world, and the steps they take are reported beside their returns as ``diagnostics["environment_steps"]``.

To add a method, write ``adapt(problem) → Adapted`` and put it into :data:`METHODS`. One whose behaviour is
more than a latent per task returns a :class:`Behaviour` with the policy to be tested.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from zol.adapt.base import Adapted, Evidence, identity
from zol.adapt.controls import perturbed, prompted
from zol.adapt.zol import AUTHORS, ZOLConfig, zol
from zol.bench.paper import best_on_test_returns
from zol.errors import ZolError, unknown_name
from zol.models.base import Model
from zol.models.learned_world import LearnedWorld
from zol.prompt import RewardPrompt
from zol.tasks import Task
from zol.worlds.base import World


@dataclass(frozen=True)
class Problem:
    """What a method is asked to solve: all tasks of one domain on one frozen model."""

    model: Model
    evidence: Evidence
    domain: str  # name of the world
    tasks: Mapping[str, Task]  # those of the evidence, by name
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
    settings: Mapping[str, object] = field(default_factory=dict)  # fixed in advance; part of a result's key


def prompt_method(problem: Problem, how: RewardPrompt, centre: bool = False) -> Adapted:
    """A closed-form latent."""
    return prompted(problem.model, problem.evidence, how, centre=centre)


def search(problem: Problem, config: ZOLConfig) -> Adapted:
    """ZOL from plain FB's latents, with the same settings for every task."""
    generator = problem.generator("zol")
    return zol(problem.model, problem.evidence, problem.start, config, generator=generator)


def search_as_in_paper(problem: Problem) -> Adapted:
    """ZOL with the paper's own settings of each domain and task."""
    evidence, start = problem.evidence, problem.start
    settings = {name: best_on_test_returns(problem.domain, name) for name in evidence.tasks}
    found = [
        zol(problem.model, evidence.only(name), start[t : t + 1], settings[name])
        for t, name in enumerate(evidence.tasks)
    ]
    return Adapted(
        z=torch.cat([one.z for one in found], dim=1),
        start=torch.cat([one.start for one in found]),
        method="zol-paper",
        configs=({name: config.model_dump() for name, config in settings.items()},),
        evidence=evidence,
        model_identity=identity(problem.model),
        estimate=torch.cat([one.estimate for one in found], dim=1),
        diagnostics={
            name: torch.cat([one.diagnostics[name] for one in found], dim=1) for name in found[0].diagnostics
        },
    )


def random_moves(problem: Problem) -> Adapted:
    """The control: plain FB's latents, moved as far as ZOL moved them, in random directions."""
    moved = search(problem, ZOLConfig()).distance[0]
    generator = problem.generator("perturb")
    return perturbed(problem.model, problem.evidence, problem.start, moved, generator)


METHODS: dict[str, Method] = {
    "fb": Method(partial(prompt_method, how="correlation"), "plain FB: z = E[B r]"),
    "fb-centred": Method(
        partial(prompt_method, how="correlation", centre=True), "plain FB with the mean reward subtracted"
    ),
    "ridge": Method(partial(prompt_method, how="ridge"), "least squares r ≈ Bᵀz"),
    "weighted": Method(partial(prompt_method, how="weighted"), "z = E[softmax(10 r) B r]"),
    "zol": Method(
        partial(search, config=ZOLConfig()),
        "the paper's search, one setting for all tasks",
        settings=ZOLConfig().model_dump(),
    ),
    "zol-paper": Method(
        search_as_in_paper,
        "the paper's search with its settings per task, which the authors chose by test returns",
    ),
    "zol-authors": Method(
        partial(search, config=AUTHORS),
        "the search as in the authors' code: exp weights, μ over data states",
        settings=AUTHORS.model_dump(),
    ),
    "perturb": Method(
        random_moves,
        "control: random moves as long as zol's",
        settings={"as far as": ZOLConfig().model_dump()},
    ),
}
"""name → method. ``oracle`` rows are no methods: they are read off a sweep (:mod:`zol.bench.sweep`)."""


def find_method(name: str) -> Method:
    """The method of that name; a near miss is suggested."""
    if name not in METHODS:
        raise ZolError(unknown_name("method", name, METHODS))
    return METHODS[name]


def solve(name: str, problem: Problem) -> Behaviour:
    """Run a method under its own name; one that works offline is kept away from the world."""
    method = find_method(name)
    given = problem if not method.offline else replace(problem, world=None)
    result = method.adapt(given)
    behaviour = result if isinstance(result, Behaviour) else Behaviour(result)
    return replace(behaviour, found=replace(behaviour.found, method=name))
