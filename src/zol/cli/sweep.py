"""``zol sweep``: the paper's 72 configurations, and as many random moves."""

from pathlib import Path

import tyro
from rich.console import Console


def sweep(
    models: tyro.conf.Positional[tuple[Path, ...]],
    store: Path = Path("results/store.sqlite"),
    episodes: int = 20,
    steps: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    ray: str | None = None,
) -> None:
    """Test all 72 configurations of the paper's sweep and as many random moves of the same sizes.

    All configurations and tasks of a model are searched as one batch. Each is then tested on the same start
    states as plain FB, so that zol report can show what choosing by test returns buys, and what each
    hyperparameter does. 20 episodes per cell instead of 100, because 2 × 72 configurations × 4 tasks are many
    cells. Resumable, like zol bench.

    Args:
        models: checkpoint folders
        store: file of results, created if need be
        episodes: test episodes per configuration and task
        steps: length of an episode; the world's own unless told
        limit: only the first so many configurations, for a trial
        seed: of the random moves
        workers: local processes; as many as cores unless told
        ray: address of a Ray cluster to run on instead (auto: the one on this machine)
    """
    from zol.bench.paper import sweep_configs
    from zol.bench.protocols import Protocol, open_subject
    from zol.bench.run import run_grid
    from zol.bench.store import Store
    from zol.bench.sweep import plan_sweep
    from zol.common.errors import ZolError
    from zol.common.provenance import command

    console = Console()
    if not models:
        raise ZolError("no model to test: give checkpoint folders (zol train writes them)")
    protocol = Protocol(name="sweep", episodes=episodes, steps=steps, seed=seed)
    results = Store(store)
    for path in models:
        subject = open_subject(path, protocol)
        jobs = plan_sweep(subject, protocol, sweep_configs()[:limit], results, command())
        console.print(f"{path}: {len(jobs)} jobs to do", soft_wrap=True)
        run_grid(jobs, results, workers=workers, ray=ray)
    console.print(f"{len(results)} cells are in {store}; zol report {store} shows them", soft_wrap=True)
