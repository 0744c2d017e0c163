"""What every estimator of a latent's value is given, and what it gives back.

All estimates are on the scale of a mean reward per step. Intervals are ±1.96 standard errors of what an
estimator averages over: they say how well it knows its own mean, not whether the model behind it is right.
``zol bench ranking`` measures the latter against true returns (docs/what-we-found.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from zol import prompt
from zol.common.errors import CheckpointError, DataError
from zol.evidence import Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Model
from zol.tasks import Task

Z95 = 1.96


@dataclass(frozen=True)
class ValueProblem:
    """All that an estimator may look at; a frozen model and its labelled sample always, the rest by need."""

    model: Model
    evidence: Evidence
    tasks: Sequence[Task] = ()  # those of the evidence, in its order
    layout: Layout | None = None  # what the columns of an observation mean
    learned_world: LearnedWorld | None = None
    generator: torch.Generator | None = None  # for estimators that draw; none means seed 0

    def random(self) -> torch.Generator:
        """The generator to draw from."""
        return self.generator if self.generator is not None else torch.Generator().manual_seed(0)

    @cached_property
    def moments(self) -> prompt.RewardMoments:
        """E[B r], E[r] and the least-squares weights of the tasks' rewards."""
        return prompt.reward_moments(self.model, self.evidence.obs, self.evidence.rewards)

    @cached_property
    def start_rewards(self) -> Tensor:
        """r(s0) of every start state ``[T, S]``; zero where the model's measure does not count it."""
        evidence = self.evidence
        return prompt.start_rewards(self.model, evidence.obs, evidence.rewards, evidence.starts)


@dataclass(frozen=True)
class ValueEstimate:
    """Estimates ``[K, T]`` of K latents on T tasks, in reward per step."""

    mean: Tensor
    error: Tensor  # standard error
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)  # each [K] or [K, T]
    weights: Tensor | None = None  # [K, N], the density ratio on the sample, of estimators that have one

    @property
    def low(self) -> Tensor:
        """Lower end of the 95 % interval."""
        return self.mean - Z95 * self.error

    @property
    def high(self) -> Tensor:
        """Upper end of the 95 % interval."""
        return self.mean + Z95 * self.error


@dataclass(frozen=True)
class Estimator:
    """A way to value latents offline; ``ESTIMATORS`` holds them by name, with a line on what each is."""

    function: Callable[[ValueProblem, Tensor], ValueEstimate]  # latents [K, d] → estimates [K, T]
    formula: str  # what it computes
    interval: str  # what its interval covers
    cost: str  # what K latents cost
    needs_learned_world: bool = False
    needs_transitions: bool = False  # whole transitions (s, a, s', terminated) in the evidence

    def missing(self, problem: ValueProblem) -> str:
        """What this estimator would need and the problem does not have; empty if it can be used."""
        evidence = problem.evidence
        if self.needs_learned_world and problem.learned_world is None:
            return (
                "a learned world, which this checkpoint does not hold: zol train dynamics --data … --out … "
                "adds one"
            )
        if self.needs_learned_world and (problem.layout is None or not problem.tasks):
            return "the tasks as functions and the layout of observations: ValueProblem(tasks=…, layout=…)"
        parts = (evidence.before, evidence.action, evidence.terminated)
        if self.needs_transitions and any(part is None for part in parts):
            return (
                "whole transitions, and the sample holds next states only: gather the evidence from a dataset"
            )
        return ""

    @torch.no_grad()
    def estimate(self, problem: ValueProblem, z: Tensor) -> ValueEstimate:
        """What latents ``[K, d]`` earn per step on every task of the problem, ``[K, T]``."""
        if z.ndim != 2 or z.shape[-1] != problem.model.z_dim:
            raise DataError(
                f"latents have shape {tuple(z.shape)}; an estimator wants [K, {problem.model.z_dim}]"
            )
        names = tuple(task.name for task in problem.tasks)
        if names and names != problem.evidence.tasks:
            raise DataError(
                f"the evidence is labelled for {', '.join(problem.evidence.tasks)}, the tasks are "
                f"{', '.join(names)}: give the same tasks in the same order"
            )
        lacking = self.missing(problem)
        if lacking:
            raise CheckpointError(f"this estimator needs {lacking}")
        return self.function(problem, z)


def over_members_and_starts(values: Tensor) -> ValueEstimate:
    """``[K, P, T, S]`` → means, and the standard error of both: members and starts vary independently."""
    _, members, _, starts = values.shape
    by_start = values.mean(1).std(-1) / starts**0.5 if starts > 1 else torch.zeros(())
    doubt = values.mean(-1).std(1) if members > 1 else torch.zeros_like(values[:, 0, :, 0])
    error = (by_start**2 + (doubt / members**0.5) ** 2).sqrt()
    return ValueEstimate(values.mean((1, 3)), error, {"doubt": doubt})
