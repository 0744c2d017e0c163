"""``zol bench unseen``: tasks of the benchmark's worlds on which no rule or setting of a method was chosen.

The 16 tasks of the paper have been looked at many times: rules and settings of our own method were changed
after losses on them (docs/offline-models.md). No method had been tested on these when all of that was fixed.
They stay a fair test for as long as nobody changes anything because of them. Pretraining is another matter:
walker's flip was among the five tasks whose mean return chose the settings of the cpu preset.
"""

from pathlib import Path

import tyro

from zol.adapt import METHODS
from zol.bench.benchmark import Benchmark
from zol.bench.run import RunOptions, run_methods

TASKS: dict[str, tuple[str, ...]] = {
    "walker": ("flip",),
    "cheetah": ("flip", "flip_backward"),
    "quadruped": ("roll", "roll_fast"),
    "point_mass_maze": ("loop", "square", "fast_slow", "reach_bottom_left_long"),
}
"""Domain → tasks of ExORL and td_jepa that the paper leaves out, and that are no variants of its own."""


def unseen(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Nine tasks beside the paper's 16 (flips, rolls, laps of the maze): a fair test of what was tuned there.

    Results stand in the store under their own name, beside those of zol bench exorl; zol report shows both.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; all but zol-paper unless told, whose settings are for the paper's tasks
        options: the test
    """
    run_methods("unseen", UNSEEN, models, methods, options)


UNSEEN = Benchmark(unseen, TASKS, tuple(name for name in METHODS if name != "zol-paper"))
