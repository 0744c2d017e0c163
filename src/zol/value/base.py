"""What every estimator of a latent's value is given, and what it gives back.

All estimates are on the scale of a mean reward per step. An estimator's own interval is ±1.96 standard errors
of what it averages over: it says how well the estimator knows its own mean, not whether the model behind it
is right. ``zol bench ranking`` and ``zol bench ratios`` measure the latter against true returns
(docs/values.md), and what is printed as an interval comes from there (zol.value.accuracy).

Diagnostics have the same names wherever they exist:

    mean_ratio       E[w], the mass of the ratio; 1 where no episode ends
    negative_share   share of the sample with a negative ratio; a true ratio has none
    ess              (Σw)² / (N Σw²), the share of the sample that carries the estimate
    flow_residual    how far the ratio violates the Bellman-flow equation; 0 is a perfect ratio, and 1 one
                     that is zero everywhere (zol.value.linear)
    doubt            standard deviation between the members of an ensemble
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from zol import prompt
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.evidence import Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld, rewards
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
    progress: Progress | None = None  # where estimators that take longer show how far they are
    episode_length: int | None = None  # of the world, where that is known

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

    @cached_property
    def transitions(self) -> Evidence | None:
        """Whole transitions (s, a, s', terminated) with their rewards; None if there are none.

        Those of the evidence. Checkpoints of earlier versions carry next states only; their learned world
        holds stretches of real experience, which serve instead. Stretches do not record whether an episode
        ended, and are taken as parts of episodes that went on.
        """
        evidence, learned = self.evidence, self.learned_world
        if not any(part is None for part in (evidence.before, evidence.action, evidence.terminated)):
            return evidence
        if learned is None or self.layout is None or not self.tasks:
            return None
        states, actions = learned.states, learned.actions
        obs = states[..., : self.model.obs_dim]
        return replace(
            evidence,
            before=obs[:, :-1].flatten(0, 1),
            action=actions.flatten(0, 1),
            obs=obs[:, 1:].flatten(0, 1),
            rewards=rewards(learned.dynamics, self.tasks, self.layout, states[:, 1:], actions).flatten(1),
            terminated=torch.zeros(actions.shape[:2], dtype=torch.bool).flatten(),
        )


@dataclass(frozen=True)
class ValueEstimate:
    """Estimates ``[K, T]`` of K latents on T tasks, in reward per step."""

    mean: Tensor
    error: Tensor  # standard error
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)  # each [K] or [K, T]
    seconds: float = 0.0  # what all of it took
    weights: Tensor | None = None  # [K, N], the density ratio on the sample, of estimators that have one
    told: str = ""  # who made it and how well that estimator did against true returns (zol.value.accuracy)
    likely: Tensor | None = None  # [2, K] or [2]: ends of the measured interval, where there is one

    def __repr__(self) -> str:
        if self.mean.numel() == 1:
            value = f"{float(self.mean):.3g} per step"
            if self.likely is not None:
                low, high = self.likely.flatten().tolist()
                value += f", likely {low:.3g} to {high:.3g}"
        else:
            shape, low, high = list(self.mean.shape), float(self.mean.min()), float(self.mean.max())
            value = f"{shape} values per step between {low:.3g} and {high:.3g}"
        return f"ValueEstimate({value}; offline{f', {self.told}' if self.told else ''})"

    def at(self, rows: Tensor) -> "ValueEstimate":
        """The estimates of some latents, or of one."""
        told = {name: value[rows] for name, value in self.diagnostics.items()}
        likely = None if self.likely is None else self.likely[:, rows]
        return replace(self, mean=self.mean[rows], error=self.error[rows], diagnostics=told, likely=likely)

    def on_task(self, t: int) -> "ValueEstimate":
        """The estimates ``[K]`` on one task."""
        told = {n: value[:, t] if value.ndim == 2 else value for n, value in self.diagnostics.items()}
        return replace(self, mean=self.mean[:, t], error=self.error[:, t], diagnostics=told)

    @property
    def low(self) -> Tensor:
        """Lower end of the estimator's own 95 % interval."""
        return self.mean - Z95 * self.error

    @property
    def high(self) -> Tensor:
        """Upper end of the estimator's own 95 % interval."""
        return self.mean + Z95 * self.error


@dataclass(frozen=True)
class Estimator:
    """A way to value latents offline; ``ESTIMATORS`` holds them by name, with a line on what each is."""

    function: Callable[..., ValueEstimate]  # problem, latents [K, d] (and settings) → estimates [K, T]
    formula: str  # what it computes
    interval: str  # what its interval covers
    cost: str  # what K latents cost
    needs_learned_world: bool = False
    needs_transitions: bool = False  # whole transitions (s, a, s', terminated) in the evidence
    settings: Config | None = None  # of an estimator that learns something anew for the latents
    shared: bool = False  # whether latents share what it learns: an estimate then depends on its company

    @property
    def learns(self) -> bool:
        """Whether it trains networks for the latents it is asked about, which takes seconds."""
        return self.settings is not None

    def missing(self, problem: ValueProblem) -> str:
        """What this estimator would need and the problem does not have; empty if it can be used."""
        if self.needs_learned_world and problem.learned_world is None:
            return (
                "a learned world, which this checkpoint does not hold: zol train dynamics --data … --out … "
                "adds one"
            )
        if self.needs_learned_world and (problem.layout is None or not problem.tasks):
            return "the tasks as functions and the layout of observations: ValueProblem(tasks=…, layout=…)"
        if self.needs_transitions and problem.transitions is None:
            return (
                "whole transitions (s, a, s', terminated), and the sample holds next states only: gather the "
                "evidence from a dataset, zol.load(path, data=dataset)"
            )
        return ""

    @torch.no_grad()
    def estimate(self, problem: ValueProblem, z: Tensor, settings: Config | None = None) -> ValueEstimate:
        """What latents ``[K, d]`` earn per step on every task of the problem, ``[K, T]``.

        ``settings`` instead of the estimator's own, which are the same for all tasks.
        """
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
        chosen = settings or self.settings
        more: tuple[Any, ...] = () if chosen is None else (chosen,)
        begin = time.perf_counter()
        found = self.function(problem, z, *more)
        return replace(found, seconds=time.perf_counter() - begin)


def over_members_and_starts(values: Tensor) -> ValueEstimate:
    """``[K, P, T, S]`` → means, and the standard error of both: members and starts vary independently."""
    _, members, _, starts = values.shape
    by_start = values.mean(1).std(-1) / starts**0.5 if starts > 1 else torch.zeros(())
    doubt = values.mean(-1).std(1) if members > 1 else torch.zeros_like(values[:, 0, :, 0])
    error = (by_start**2 + (doubt / members**0.5) ** 2).sqrt()
    return ValueEstimate(values.mean((1, 3)), error, {"doubt": doubt})


def joined(parts: Sequence[ValueEstimate]) -> ValueEstimate:
    """The estimates of several groups of latents as one."""
    weights = [part.weights for part in parts if part.weights is not None]
    return ValueEstimate(
        torch.cat([part.mean for part in parts]),
        torch.cat([part.error for part in parts]),
        {name: torch.cat([part.diagnostics[name] for part in parts]) for name in parts[0].diagnostics},
        sum(part.seconds for part in parts),
        weights=torch.cat(weights) if weights else None,
    )
