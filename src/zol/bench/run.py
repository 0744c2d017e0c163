"""Running methods on models into a store, and running stored cells once more to see whether they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from zol import report
from zol.adapt import find_method
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import Conditions, open_model, split_kind
from zol.bench.executor import Job, require_ray, run_jobs
from zol.bench.jobs import AnyJob, Comparison, compare_again, plan, unfinished
from zol.bench.results import gather
from zol.bench.sections import conclusion, verdict
from zol.bench.store import Result, Store
from zol.common.errors import ZolError
from zol.common.interrupts import Stopped
from zol.common.progress import Ticker, progress_bar
from zol.common.provenance import command
from zol.common.terminal import terminal

STORE = Path("runs/bench/store.sqlite")  # not the one of this repository's results, which git tracks


@dataclass(frozen=True)
class RunOptions:
    """How methods are tested on models, and where the results go."""

    store: Path = STORE
    """file of results, created if need be"""
    episodes: int = 100
    """paired test episodes per task"""
    steps: int | None = None
    """length of an episode; the world's own unless told"""
    seed: int = 0
    """of what is random in methods; start states of test episodes have a seed of their own"""
    workers: int | None = None
    """local processes; as many as cores unless told"""
    ray: Annotated[str | None, arg(metavar="ADDRESS")] = None
    """address of a Ray cluster to run on instead (auto: the one on this machine)"""
    verify: bool = False
    """run cells that are in the store once more and say whether they reproduce bit for bit"""


def run_methods(
    name: str, benchmark: Benchmark, models: Sequence[Path], methods: Sequence[str], options: RunOptions
) -> None:
    """Methods (the benchmark's own unless given) on models into a store, or once more to verify it."""
    console = terminal()
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    methods = methods or benchmark.methods
    for method in methods:
        find_method(method)
    results = Store(options.store)  # before models are opened and labelled: is it one, can it be written?
    if options.ray is not None:
        require_ray()
    conditions = Conditions(name=name, episodes=options.episodes, steps=options.steps, seed=options.seed)
    benched = [open_model(path, conditions) for path in models]
    for model in benched:
        if model.unrewarded:
            note = f"{model.path}: no reward in its sample, left out: {', '.join(model.unrewarded)}"
            console.print(note, soft_wrap=True)
    jobs = [
        job
        for model in benched
        for job in plan(
            [model],
            methods,
            conditions.updated(model=model.kind) if benchmark.kinds_apart else conditions,
            command(),
        )
    ]
    if options.verify:
        verify_grid(jobs, results, console, workers=options.workers, ray=options.ray)
        return
    todo = [job for job in jobs if unfinished(results, job)]
    console.print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are done already", soft_wrap=True)
    run_grid(todo, results, workers=options.workers, ray=options.ray)
    compared = [
        r
        for r in results.results(method=benchmark.baseline)
        if split_kind(r.key.benchmark)[0] == conditions.benchmark
    ]
    if compared:
        found = gather(results, conditions.benchmark)
        cells = verdict(found, methods)
        report.print_table(console, cells, f"{conditions.benchmark}: everything in the store so far")
        console.print(conclusion(found, methods), highlight=False, soft_wrap=True)
    console.print(
        f"{len(results)} cells are in {options.store}; zol report {options.store} shows them", soft_wrap=True
    )


def run_grid(
    jobs: Sequence[AnyJob], store: Store, *, workers: int | None = None, ray: str | None = None
) -> None:
    """Do what is not in the store yet."""
    with progress_bar() as progress:
        bar = Ticker(progress, "jobs", len(jobs))

        def done(job: Job[list[Result]], results: list[Result]) -> None:
            store.add(results)
            bar.advance(note=job.name)

        def wanted(job: Job[list[Result]]) -> bool:
            missing = unfinished(store, job)  # type: ignore[arg-type]
            if not missing:
                bar.advance()
            return missing

        try:
            run_jobs(jobs, done, wanted=wanted, workers=workers, ray=ray)
        except KeyboardInterrupt as interrupt:
            raise Stopped(
                f"{len(store)} finished cells are in {store.path}, unfinished jobs are lost; the same "
                "command goes on with the rest"
            ) from interrupt


def verify_grid(
    jobs: Sequence[AnyJob],
    store: Store,
    console: Console,
    *,
    workers: int | None = None,
    ray: str | None = None,
) -> None:
    """Run the jobs whose cells are in the store again, and compare every episode's return."""
    known = [job for job in jobs if not unfinished(store, job)]
    if not known:
        raise ZolError(f"{store.path} holds none of these cells yet: run them first, without --verify")
    compared: list[Comparison] = []
    run_jobs(
        known,
        lambda _, results: compared.extend(compare_again(store, results)),
        workers=workers,
        ray=ray,
    )
    rows = [
        [
            f"{c.key.domain} {c.key.task}",
            c.key.method,
            "identical" if c.identical else f"differs by up to {c.difference:.3g}",
        ]
        for c in compared
    ]
    report.print_table(console, (["cell", "method", "every episode"], rows), "Run again")
    different = sum(not c.identical for c in compared)
    if different:
        raise ZolError(
            f"{different} of {len(compared)} cells do not reproduce: compare versions, commit and hardware "
            "of the stored cells with this machine's"
        )
    console.print(f"{len(compared)} cells reproduce bit for bit")
