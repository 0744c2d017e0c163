"""The work of a benchmark, cut into jobs that depend on nothing but a checkpoint.

``MethodJob``  one method on all tasks of one model: adapt, then test
``LatentJob``  test episodes of latents that were found elsewhere, such as those of a sweep

A job's batch does not depend on which other jobs there are, and torch uses one thread in it: the same job
gives the same returns, bit for bit, whatever ran beside it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from zol.adapt import find_method, solve
from zol.adapt.problem import Method
from zol.bench.benchmark import score_of
from zol.bench.conditions import BenchedModel, Conditions, open_model
from zol.bench.store import Key, Result, Store, canonical, now, stamp
from zol.common.errors import DataError
from zol.common.threads import one_torch_thread
from zol.models.base import Latent
from zol.rollout import Rollouts, evaluate
from zol.worlds import make
from zol.worlds.base import World


@dataclass(frozen=True)
class MethodJob:
    """One method on all tasks of one model."""

    checkpoint: str
    method: str
    conditions: Conditions
    keys: tuple[Key, ...]  # the cells it fills
    command: str | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.method} on {self.checkpoint}"

    def run(self, threads: int) -> list[Result]:
        """Adapt, then test."""
        method = find_method(self.method)
        with one_torch_thread():
            benched = open_model(self.checkpoint, self.conditions)
            # The world that a method may act in is not the one it is tested in: no state is carried over.
            world = None if method.offline else _world(benched, threads)
            began = time.perf_counter()
            behaviour = solve(self.method, benched.problem(world))
            seconds = time.perf_counter() - began
            played = _test(benched, self.conditions, behaviour.found.latents(), threads, behaviour.policy)
        scores = _scores(played, self.conditions)
        found = behaviour.found
        steps = found.diagnostics.get("environment_steps")
        facts = stamp(self.command)
        return [
            Result(
                key=key,
                returns=scores[t].numpy(),
                estimate=float(found.estimate[0, t]),
                diagnostics={name: float(value[0, t]) for name, value in found.diagnostics.items()},
                chosen=dict(found.configs[0]),
                offline=method.offline,
                environment_steps=0 if steps is None else int(steps[0, t]),
                seconds=seconds,
                facts=facts,
                finished=now(),
            )
            for t, key in enumerate(self.keys)
        ]


@dataclass(frozen=True)
class LatentJob:
    """Test episodes of given latents. Cells that share a latent share its episodes."""

    checkpoint: str
    conditions: Conditions
    latents: tuple[Latent, ...]
    cells: tuple[tuple[Result, ...], ...]  # per latent: the cells it fills, still without returns
    part: str = ""
    command: str | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.conditions.name} of {self.checkpoint}, {self.part}"

    @property
    def keys(self) -> tuple[Key, ...]:
        """The cells it fills."""
        return tuple(cell.key for shared in self.cells for cell in shared)

    def run(self, threads: int) -> list[Result]:
        """Play the test episodes of all latents."""
        with one_torch_thread():
            benched = open_model(self.checkpoint, self.conditions)
            played = _test(benched, self.conditions, self.latents, threads)
        facts, finished = stamp(self.command), now()
        return [
            replace(cell, returns=returns.double().numpy(), facts=facts, finished=finished)
            for shared, returns in zip(self.cells, _scores(played, self.conditions), strict=True)
            for cell in shared
        ]


AnyJob = MethodJob | LatentJob


def plan(
    models: Sequence[BenchedModel], methods: Sequence[str], conditions: Conditions, command: str | None = None
) -> list[MethodJob]:
    """One job per model and method, done or not; a model skips what its observations do not suit, and
    without a learned world what needs one."""
    return [
        MethodJob(benched.path, method, conditions, method_keys(benched, method, conditions), command)
        for benched in models
        for method in methods
        if _can_be_run(find_method(method), benched)
    ]


def _can_be_run(method: Method[Any], benched: BenchedModel) -> bool:
    """Whether a model has what a method needs."""
    suited = method.suits is None or method.suits(benched.without_world.layout)
    return suited and (benched.dynamics is not None or not method.needs_learned_world)


def method_keys(benched: BenchedModel, method: str, conditions: Conditions) -> tuple[Key, ...]:
    """The cells that a method fills on a model, one per task."""
    settings = canonical(find_method(method).key())
    return tuple(cell_key(benched, conditions, task, method, settings) for task in benched.evidence.tasks)


def cell_key(
    benched: BenchedModel, conditions: Conditions, task: str, method: str, configuration: str
) -> Key:
    """The name of one cell."""
    return Key(
        benchmark=conditions.benchmark,
        domain=benched.domain,
        task=task,
        method=method,
        configuration=configuration,
        model=benched.identity,
        pretraining_seed=benched.pretraining_seed,
        evaluation_seed=conditions.evaluation_seed,
    )


def unfinished(store: Store, job: AnyJob) -> bool:
    """Whether a job has cells that the store lacks."""
    return not all(key in store for key in job.keys)


@dataclass(frozen=True)
class Comparison:
    """A cell that was run again: does it give the same numbers?"""

    key: Key
    identical: bool
    difference: float  # largest difference of an episode's return


def compare_again(store: Store, results: Sequence[Result]) -> list[Comparison]:
    """Compare fresh results with stored ones, bit for bit."""
    compared = []
    for result in results:
        (before,) = store.results(**vars(result.key))
        old, new = torch.from_numpy(before.returns), torch.from_numpy(result.returns)
        compared.append(Comparison(result.key, torch.equal(old, new), float((old - new).abs().max())))
    return compared


def _test(
    benched: BenchedModel,
    conditions: Conditions,
    latents: Sequence[Latent],
    threads: int,
    policy: Callable[[Tensor], Tensor] | None = None,
) -> Rollouts:
    return evaluate(
        _world(benched, threads),
        benched.model,
        latents,
        episodes=conditions.episodes,
        generator=conditions.test_generator(),
        steps=conditions.steps,
        policy=policy,
    )


def _scores(played: Rollouts, conditions: Conditions) -> Tensor:
    """What the benchmark counts of test episodes ``[L, E]``: returns, or whether the task was ever solved."""
    if score_of(conditions.name) == "return":
        return played.returns.double()
    if played.success is None:
        raise DataError(f"{conditions.name} counts successes, and its tasks have no test of success")
    return played.success.double()


def _world(benched: BenchedModel, threads: int) -> World:
    """The model's world; a simulator with threads of its own uses no more than its share of the cores."""
    world = make(benched.without_world.domain)
    if world.threads is not None:
        world.threads = threads
    return world
