"""``zol bench rehearsal``: the imagined search with one setting changed at a time."""

from pathlib import Path

import tyro

from zol.adapt.paper_settings import TASKS
from zol.bench.benchmark import Benchmark
from zol.bench.run import RunOptions, run_methods

# How far it looks, how many networks judge, how it doubts.
VARIANTS = (
    *(f"rehearse horizon={steps}" for steps in (25, 50, 100, 400)),
    *(f"rehearse members={count}" for count in (1, 2)),
    *(f"rehearse noise={size}" for size in (0.5, 1.0)),
    "rehearse pessimism=0.0",
    "rehearse min_gain=0.0",
    "rehearse horizon=50 bootstrap=true",
    "rehearse min_correlation=-1.0 max_one_step_error=9.0",
)


def rehearsal(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Change one setting of ``rehearse`` at a time, on the ExORL tasks: horizon, ensemble, noise, rules.

    Results stand in the store under their own name, beside those of zol bench exorl; zol report shows both.

    Args:
        models: checkpoint folders or names of the zoo, with learned worlds
        methods: some of the variants, in quotes; all of them unless told
        options: the test
    """
    run_methods("rehearsal", REHEARSAL, models, methods, options)


REHEARSAL = Benchmark(rehearsal, TASKS, ("fb", "rehearse", *VARIANTS))
