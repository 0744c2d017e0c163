"""``zol bench ogbench``: the paper's second table, success rates on OGBench's datasets."""

from pathlib import Path

import tyro

from zol.bench.benchmark import Benchmark
from zol.bench.run import RunOptions, run_methods

# The paper's eight datasets, and the point's, which train within minutes.
DATASETS = (
    "antmaze-large-navigate",
    "antmaze-large-stitch",
    "antmaze-medium-navigate",
    "antmaze-medium-stitch",
    "antmaze-medium-explore",
    "cube-single-play",
    "cube-double-play",
    "puzzle-3x3-play",
    "pointmaze-medium-navigate",
    "pointmaze-medium-stitch",
    "pointmaze-large-navigate",
    "pointmaze-large-stitch",
)
TASKS = {dataset: tuple(f"task{number}_shifted" for number in range(1, 6)) for dataset in DATASETS}
# The paper's rows (ReLA, LoLA, FB, ZOL), goals as prompts, controls, and ours.
METHODS = (
    *("fb", "goal", "ridge", "zol", "zol-paper", "perturb"),
    *("subgoals", "waypoints", "switches", "rehearse", "lola", "rela"),
)


def ogbench(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Success on five tasks per dataset of OGBench: every method on every model, the same test episodes for
    all.

    An episode counts 1 if its task was solved at any time and 0 otherwise. Latents come from rewards with
    td_jepa's shift by one, or from goals; every task begins in its own start states, which methods know of
    and test episodes draw anew. Finished cells are in the store and are not run again; what was found: zol
    report.

    Args:
        models: checkpoint folders; each knows its dataset and its seed
        methods: names of methods; those of the paper, goals, controls and ours unless told. Changed settings
        may
            follow a name in quotes
        options: the test
    """
    run_methods("ogbench", OGBENCH, models, methods, options)


OGBENCH = Benchmark(ogbench, TASKS, METHODS, score="success")
