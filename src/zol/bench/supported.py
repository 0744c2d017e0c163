"""``zol bench supported``: π_z against policies that stay on the data's support, on thinly covered tasks."""

from pathlib import Path

import tyro

from zol.bench.benchmark import Benchmark
from zol.bench.run import RunOptions, run_methods
from zol.worlds.donut import TASKS as DONUT

TASKS: dict[str, tuple[str, ...]] = {
    "donut": tuple(DONUT),
    "point_mass_maze": ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"),
}
"""Thin in the data: donut's outer ring and far disc, the maze's bottom right room. The others are not."""

METHODS = (
    "fb",
    *(f"{name}{how}" for name in ("supported", "guided") for how in ("", " imagined=false")),
    *(f"weighted-bc{how}" for how in ("", " imagined=false", ' weights="optidice"', ' weights="fb"')),
)


def supported(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Behaviour-supported policies against π_z itself, where the data are thin and where they are not.

    ``supported`` and ``guided`` keep all pretrained networks; ``weighted-bc`` makes a network per task, and
    belongs to the methods that change weights. Results stand in the store under their own name; zol report
    shows them.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; π_z, in-support acting and cloning with three kinds of weights unless told
        options: the test
    """
    run_methods("supported", SUPPORTED, models, methods, options)


SUPPORTED = Benchmark(supported, TASKS, METHODS)
