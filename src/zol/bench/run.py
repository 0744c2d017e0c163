"""Running a grid of jobs into a store, and running stored cells once more to see whether they hold."""

from collections.abc import Sequence

from rich.console import Console

from zol import report
from zol.bench.executor import Job, run_jobs
from zol.bench.jobs import AnyJob, Comparison, compare_again, unfinished
from zol.bench.store import Result, Store
from zol.common.errors import ZolError
from zol.common.progress import progress_bar


def run_grid(
    jobs: Sequence[AnyJob], store: Store, *, workers: int | None = None, ray: str | None = None
) -> None:
    """Do what is not in the store yet."""
    with progress_bar() as progress:
        bar = progress.add_task("jobs", total=len(jobs))

        def done(job: Job[list[Result]], results: list[Result]) -> None:
            store.add(results)
            progress.update(bar, advance=1, note=job.name)

        def wanted(job: Job[list[Result]]) -> bool:
            missing = unfinished(store, job)  # type: ignore[arg-type]
            if not missing:
                progress.advance(bar)
            return missing

        run_jobs(jobs, done, wanted=wanted, workers=workers, ray=ray)


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
    console.print(report.table((["cell", "method", "every episode"], rows), "Run again"))
    different = sum(not c.identical for c in compared)
    if different:
        raise ZolError(
            f"{different} of {len(compared)} cells do not reproduce: compare versions, commit and hardware "
            "of the stored cells with this machine's"
        )
    console.print(f"{len(compared)} cells reproduce bit for bit")
