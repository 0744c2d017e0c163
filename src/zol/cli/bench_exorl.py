"""``zol bench exorl``: methods, models and seeds as one grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console


@dataclass(frozen=True)
class Grid:
    """How methods are tested on models, and where the results go."""

    store: Path = Path("results/store.sqlite")
    """file of results, created if need be"""
    episodes: int = 100
    """paired test episodes per task"""
    steps: int | None = None
    """length of an episode; the world's own unless told"""
    seed: int = 0
    """of what is random in methods; start states of test episodes have a seed of their own"""
    workers: int | None = None
    """local processes; as many as cores unless told"""
    ray: str | None = None
    """address of a Ray cluster to run on instead (auto: the one on this machine)"""
    verify: bool = False
    """run cells that are in the store once more and say whether they reproduce bit for bit"""


def exorl(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    grid: Grid = Grid(),  # noqa: B008
) -> None:
    """The paper's 4 domains × 4 tasks: every method on every model, the same test episodes for all.

    Finished cells are in the store and are not run again; interrupted, the same command goes on where it
    stopped. What was found: zol report.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; all of them unless told. Changed settings may follow a name in quotes:
            "rehearse horizon=50"
        grid: the test
    """
    from zol.adapt.methods import METHODS

    run("exorl", models, methods or tuple(METHODS), grid)


def run(benchmark: str, models: Sequence[Path], methods: Sequence[str], grid: Grid) -> None:
    """Methods on models into a store, or once more to verify it."""
    from zol.adapt.methods import find_method
    from zol.bench.jobs import plan, unfinished
    from zol.bench.protocols import Protocol, open_subject
    from zol.bench.run import run_grid, verify_grid
    from zol.bench.store import Store
    from zol.common.errors import ZolError
    from zol.common.provenance import command

    console = Console()
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    for name in methods:
        find_method(name)
    protocol = Protocol(name=benchmark, episodes=grid.episodes, steps=grid.steps, seed=grid.seed)
    subjects = [open_subject(path, protocol) for path in models]
    for subject in subjects:
        if subject.silent:
            note = f"{subject.path}: no reward in its sample, left out: {', '.join(subject.silent)}"
            console.print(note, soft_wrap=True)
    results = Store(grid.store)
    jobs = plan(subjects, methods, protocol, command())
    if grid.verify:
        verify_grid(jobs, results, console, workers=grid.workers, ray=grid.ray)
        return
    todo = [job for job in jobs if unfinished(results, job)]
    console.print(f"{len(jobs) - len(todo)} of {len(jobs)} jobs are done already", soft_wrap=True)
    run_grid(todo, results, workers=grid.workers, ray=grid.ray)
    console.print(
        f"{len(results)} cells are in {grid.store}; zol report {grid.store} shows them", soft_wrap=True
    )
