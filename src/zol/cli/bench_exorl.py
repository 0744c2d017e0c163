"""``zol bench exorl``: methods, models and seeds as one grid."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

if TYPE_CHECKING:
    from zol.bench.protocols import Protocol


def exorl(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    store: Path = Path("results/store.sqlite"),
    episodes: int = 100,
    steps: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    ray: str | None = None,
    verify: bool = False,
) -> None:
    """The paper's 4 domains × 4 tasks: every method on every model, the same test episodes for all.

    Finished cells are in the store and are not run again; interrupted, the same command goes on where it
    stopped. What was found: zol report.

    Args:
        models: checkpoint folders; each knows its world and its seed
        methods: names of methods; all of them unless told. Changed settings may follow a name in quotes:
            "rehearse horizon=50"
        store: file of results, created if need be
        episodes: paired test episodes per task
        steps: length of an episode; the world's own unless told
        seed: of what is random in methods; start states of test episodes have a seed of their own
        workers: local processes; as many as cores unless told
        ray: address of a Ray cluster to run on instead (auto: the one on this machine)
        verify: run cells that are in the store once more and say whether they reproduce bit for bit
    """
    from zol.bench.methods import METHODS
    from zol.bench.protocols import Protocol

    protocol = Protocol(name="exorl", episodes=episodes, steps=steps, seed=seed)
    run(models, methods or tuple(METHODS), protocol, store, workers=workers, ray=ray, verify=verify)


def run(
    models: Sequence[Path],
    methods: Sequence[str],
    protocol: "Protocol",
    store: Path,
    *,
    workers: int | None,
    ray: str | None,
    verify: bool,
) -> None:
    """Methods on models into a store, or once more to verify it."""
    from zol.bench.jobs import plan, unfinished
    from zol.bench.methods import find_method
    from zol.bench.protocols import open_subject
    from zol.bench.run import run_grid, verify_grid
    from zol.bench.store import Store
    from zol.errors import ZolError
    from zol.provenance import command

    console = Console()
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    for name in methods:
        find_method(name)
    subjects = [open_subject(path, protocol) for path in models]
    for subject in subjects:
        if subject.silent:
            note = f"{subject.path}: no reward in its sample, left out: {', '.join(subject.silent)}"
            console.print(note, soft_wrap=True)
    results = Store(store)
    jobs = plan(subjects, methods, protocol, command())
    if verify:
        verify_grid(jobs, results, console, workers=workers, ray=ray)
        return
    todo = [job for job in jobs if unfinished(results, job)]
    console.print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are done already", soft_wrap=True)
    run_grid(todo, results, workers=workers, ray=ray)
    console.print(f"{len(results)} cells are in {store}; zol report {store} shows them", soft_wrap=True)
