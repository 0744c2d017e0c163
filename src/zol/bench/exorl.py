"""``zol bench exorl``: the paper's tasks, every method on every model."""

from pathlib import Path

import tyro

from zol.adapt import METHODS
from zol.adapt.paper_settings import TASKS
from zol.bench.benchmark import Benchmark
from zol.bench.run import RunOptions, run_methods


def exorl(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """The paper's 4 domains × 4 tasks: every method on every model, the same test episodes for all.

    Finished cells are in the store and are not run again; interrupted, the same command goes on where it
    stopped. What was found: zol report.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; all of them unless told. Changed settings may follow a name in quotes:
            "rehearse horizon=50"
        options: the test
    """
    run_methods("exorl", EXORL, models, methods, options)


EXORL = Benchmark(exorl, TASKS, tuple(name for name in METHODS if name != "goal"))  # its tasks have no goals
