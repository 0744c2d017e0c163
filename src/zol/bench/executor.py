"""Independent jobs, in local processes or on a Ray cluster; a lost worker costs its own job, run again.

Workers compute and the caller stores: results come back as they are finished, so nothing but the caller needs
to reach the result store. A job is a frozen dataclass with ``run(threads)``. One that raises is not tried
again (it would raise again): the others go on, and all failures are reported together at the end. One whose
worker dies is put back, up to :data:`ATTEMPTS` times.
"""

import multiprocessing
import os
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar

from zol.bench.ray_address import require_listener
from zol.common.errors import ZolError
from zol.common.extras import require

ATTEMPTS = 3
T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Job(Protocol[T_co]):
    """Something to do that depends on nothing else."""

    @property
    def name(self) -> str:
        """What progress bars and failures call it."""

    def run(self, threads: int) -> T_co:
        """Do it, with this many threads of physics."""


@dataclass
class Pending(Generic[T]):
    """Jobs that still have to be done, and what became of the others."""

    jobs: deque[tuple[Job[T], int]]
    done: Callable[[Job[T], T], None]
    wanted: Callable[[Job[T]], bool]
    failures: list[str] = field(default_factory=list)

    def next(self) -> tuple[Job[T], int] | None:
        """The next job that is still wanted (another process may have done it), and its attempt."""
        while self.jobs:
            job, attempt = self.jobs.popleft()
            if self.wanted(job):
                return job, attempt
        return None

    def lost(self, job: Job[T], attempt: int, why: str) -> None:
        """Put a job back whose worker died."""
        if attempt < ATTEMPTS:
            self.jobs.append((job, attempt + 1))
        else:
            self.failures.append(f"{job.name}: {why}, {ATTEMPTS} times")


def run_jobs(
    jobs: Sequence[Job[T]],
    done: Callable[[Job[T], T], None],
    *,
    wanted: Callable[[Job[T]], bool] = lambda job: True,
    workers: int | None = None,
    ray: str | None = None,
) -> None:
    """Run all jobs and hand each result to ``done`` in this process, in the order in which they finish.

    ``workers`` local processes (as many as cores unless told), or a Ray cluster at the address ``ray``
    ("auto" finds one that runs on this machine).
    """
    pending = Pending(deque((job, 1) for job in jobs), done, wanted)
    if ray is not None:
        _on_ray(pending, ray)
    else:
        count = max(1, min(workers or os.cpu_count() or 1, len(jobs)))
        _locally(pending, count)
    if pending.failures:
        raise ZolError(
            f"{len(pending.failures)} of {len(jobs)} jobs failed (the others are done):\n"
            + "\n".join(pending.failures)
        )


class _Worker(Generic[T]):
    """A process that does one job after another."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # torch and MuJoCo threads do not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, threads), daemon=True)
        with _environment("OMP_NUM_THREADS", str(threads)):
            self.process.start()
        theirs.close()  # ours alone would keep the pipe open after the process died
        self.task: tuple[Job[T], int] | None = None

    def give(self, task: tuple[Job[T], int]) -> None:
        self.task = task
        with suppress(OSError):  # it died while idle: its pipe is readable now, and the job will be put back
            self.pipe.send(task[0])

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, threads: int) -> None:
    while True:
        try:
            job = pipe.recv()
            pipe.send(_attempt(job, threads))
        except (EOFError, OSError, KeyboardInterrupt):
            return  # the caller is gone


def _attempt(job: Job[T], threads: int) -> tuple[str | None, T | None]:
    """An error's text or a result."""
    try:
        return None, job.run(threads)
    except ZolError as error:
        return str(error), None
    except Exception:
        return traceback.format_exc(), None


def _locally(pending: Pending[T], count: int) -> None:
    threads = max(1, (os.cpu_count() or 1) // count)
    workers: list[_Worker[T]] = []
    try:
        while True:
            while len(workers) < count and pending.jobs:
                workers.append(_Worker(threads))
            for worker in workers:
                task = pending.next() if worker.task is None else None
                if task is not None:
                    worker.give(task)
            busy = {worker.pipe: worker for worker in workers if worker.task is not None}
            if not busy:
                return
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                assert worker.task is not None
                job, attempt = worker.task
                worker.task = None
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    workers.remove(worker)
                    pending.lost(job, attempt, f"its process ended with code {worker.process.exitcode}")
                else:
                    _settle(pending, job, *outcome)
    finally:
        for worker in workers:
            worker.stop()


def _settle(pending: Pending[T], job: Job[T], error: str | None, result: T | None) -> None:
    if error is not None:
        pending.failures.append(f"{job.name}: {error}")
    else:
        assert result is not None
        pending.done(job, result)


def require_ray() -> Any:
    """The package that reaches clusters; it can be asked for before anything is computed."""
    return require("ray", "cluster", "a cluster")


def _on_ray(pending: Pending[T], address: str) -> None:
    ray = require_ray()
    require_listener(address)
    try:
        ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ZolError(
            f"no Ray cluster answers at '{address}' (ray start --head starts one): {error}"
        ) from error
    # Lost jobs are put back here, as locally, and not by Ray: one rule, one limit.
    attempt_remotely = ray.remote(num_cpus=1, max_retries=0)(_attempt)
    running: dict[Any, tuple[Job[T], int]] = {}
    try:
        while True:
            # Few more jobs than cores are handed over, so that a job which another process did is skipped.
            room = int(ray.cluster_resources().get("CPU", 1)) + 1
            while len(running) < room and (task := pending.next()) is not None:
                running[attempt_remotely.remote(task[0], 1)] = task
            if not running:
                return
            ready, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            for reference in ready:
                job, attempt = running.pop(reference)
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayTaskError as error:  # the job could not even be unpacked there
                    pending.failures.append(f"{job.name}: {error}")
                except ray.exceptions.RayError as error:
                    pending.lost(job, attempt, f"its worker was lost ({type(error).__name__})")
                else:
                    _settle(pending, job, *outcome)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        ray.shutdown()


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable that processes started inside the block inherit."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
