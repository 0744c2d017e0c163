"""``zol bench zoo`` and ``zol bench zoo_unseen``: does an adaptation beat what each model does by itself?

The zoo's models are of different kinds, and each is prompted in its own way: FB by E[B r], successor features
by least squares. Here that prompt, ``plain``, is what every method is compared with, and kinds of models are
not told apart: a row says what somebody gains who takes the model of a domain and a method.
"""

from pathlib import Path

import tyro

from zol.bench.benchmark import Benchmark
from zol.bench.exorl import EXORL
from zol.bench.run import RunOptions, run_methods
from zol.bench.unseen import UNSEEN

METHODS = ("plain", "zol", "perturb", "rehearse", "episodes", "lola")


def zoo(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """The paper's 4 domains × 4 tasks on models of any kind, against each model's own prompt.

    Finished cells are in the store and are not run again. What was found: zol report.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; plain zol perturb rehearse episodes lola unless told
        options: the test
    """
    run_methods("zoo", ZOO, models, methods, options)


def zoo_unseen(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    options: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Nine tasks beside the paper's 16 on models of any kind, against each model's own prompt.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; plain zol perturb rehearse episodes lola unless told
        options: the test
    """
    run_methods("zoo_unseen", ZOO_UNSEEN, models, methods, options)


ZOO = Benchmark(zoo, EXORL.tasks, METHODS, baseline="plain", kinds_apart=False)
ZOO_UNSEEN = Benchmark(zoo_unseen, UNSEEN.tasks, METHODS, baseline="plain", kinds_apart=False)
