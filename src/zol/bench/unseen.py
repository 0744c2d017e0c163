"""Tasks of the benchmark's worlds on which no rule or setting of a method was chosen.

The 16 tasks of the paper have been looked at many times: rules and settings of our own method were changed
after losses on them (docs/what-we-found.md). No method had been tested on these when all of that was fixed.
They stay a fair test for as long as nobody changes anything because of them. Pretraining is another matter:
walker's flip was among the five tasks whose mean return chose the settings of the cpu preset.
"""

from collections.abc import Mapping

from zol.bench import paper

NAME = "unseen"
TASKS: dict[str, tuple[str, ...]] = {
    "walker": ("flip",),
    "cheetah": ("flip", "flip_backward"),
    "quadruped": ("roll", "roll_fast"),
    "point_mass_maze": ("loop", "square", "fast_slow", "reach_bottom_left_long"),
}
"""Domain → tasks of ExORL and td_jepa that the paper leaves out, and that are no variants of its own."""


def tasks_of(benchmark: str) -> Mapping[str, tuple[str, ...]]:
    """The tasks per domain of a benchmark, which may carry settings behind its name."""
    return TASKS if benchmark.split()[0] == NAME else paper.TASKS
