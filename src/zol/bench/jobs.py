"""The work of a benchmark, cut into jobs that depend on nothing but a checkpoint.

``MethodJob``  one method on all tasks of one model: adapt, then test
``LatentJob``  test episodes of latents that were found elsewhere, such as those of a sweep

A job's batch does not depend on which other jobs there are, and torch uses one thread in it: the same job
gives the same returns, bit for bit, whatever ran beside it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.adapt.methods import find_method, solve
from zol.bench.protocols import Protocol, Subject, open_subject
from zol.bench.store import Key, Result, Store, canonical, now, stamp
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
    protocol: Protocol
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
            subject = open_subject(self.checkpoint, self.protocol)
            # The world that a method may act in is not the one it is tested in: no state is carried over.
            world = None if method.offline else _world(subject, threads)
            began = time.perf_counter()
            behaviour = solve(self.method, subject.problem(self.protocol, world))
            seconds = time.perf_counter() - began
            played = _test(subject, self.protocol, behaviour.found.latents(), threads, behaviour.policy)
        found = behaviour.found
        steps = found.diagnostics.get("environment_steps")
        facts = stamp(self.command)
        return [
            Result(
                key=key,
                returns=played.returns[t].double().numpy(),
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
    protocol: Protocol
    latents: tuple[Latent, ...]
    cells: tuple[tuple[Result, ...], ...]  # per latent: the cells it fills, still without returns
    part: str = ""
    command: str | None = None

    @property
    def name(self) -> str:
        """What to call it."""
        return f"{self.protocol.name} of {self.checkpoint}, {self.part}"

    @property
    def keys(self) -> tuple[Key, ...]:
        """The cells it fills."""
        return tuple(cell.key for shared in self.cells for cell in shared)

    def run(self, threads: int) -> list[Result]:
        """Test."""
        with one_torch_thread():
            subject = open_subject(self.checkpoint, self.protocol)
            played = _test(subject, self.protocol, self.latents, threads)
        facts, finished = stamp(self.command), now()
        return [
            replace(cell, returns=returns.double().numpy(), facts=facts, finished=finished)
            for shared, returns in zip(self.cells, played.returns, strict=True)
            for cell in shared
        ]


AnyJob = MethodJob | LatentJob


def plan(
    subjects: Sequence[Subject], methods: Sequence[str], protocol: Protocol, command: str | None = None
) -> list[MethodJob]:
    """One job per model and method, done or not; without a learned world, a model skips what needs one."""
    return [
        MethodJob(subject.path, method, protocol, method_keys(subject, method, protocol), command)
        for subject in subjects
        for method in methods
        if subject.dynamics is not None or not find_method(method).rehearses
    ]


def method_keys(subject: Subject, method: str, protocol: Protocol) -> tuple[Key, ...]:
    """The cells that a method fills on a model, one per task."""
    settings = canonical(find_method(method).settings)
    return tuple(cell_key(subject, protocol, task, method, settings) for task in subject.evidence.tasks)


def cell_key(subject: Subject, protocol: Protocol, task: str, method: str, configuration: str) -> Key:
    """The name of one cell."""
    return Key(
        benchmark=protocol.benchmark,
        domain=subject.domain,
        task=task,
        method=method,
        configuration=configuration,
        model=subject.identity,
        pretraining_seed=subject.pretraining_seed,
        evaluation_seed=protocol.evaluation_seed,
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
    subject: Subject,
    protocol: Protocol,
    latents: Sequence[Latent],
    threads: int,
    policy: Callable[[Tensor], Tensor] | None = None,
) -> Rollouts:
    return evaluate(
        _world(subject, threads),
        subject.model,
        latents,
        episodes=protocol.episodes,
        generator=protocol.test_generator(),
        steps=protocol.steps,
        policy=policy,
    )


def _world(subject: Subject, threads: int) -> World:
    """The subject's world; a simulator with threads of its own uses no more than its share of the cores."""
    world = make(subject.domain)
    if world.threads is not None:
        world.threads = threads
    return world
