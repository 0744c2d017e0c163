"""``zol bench unseen``: the methods on tasks that nothing was chosen on."""

from pathlib import Path

import tyro

from zol.cli.bench_exorl import Grid, run


def unseen(
    models: tyro.conf.Positional[tuple[Path, ...]],
    methods: tuple[str, ...] = (),
    grid: Grid = Grid(),  # noqa: B008
) -> None:
    """Nine tasks beside the paper's 16 (flips, rolls, laps of the maze): a fair test of what was tuned there.

    Results stand in the store under their own name, beside those of zol bench exorl; zol report shows both.

    Args:
        models: checkpoint folders or names of the zoo; each knows its world and its seed
        methods: names of methods; all but zol-paper unless told, whose settings are for the paper's tasks
        grid: the test
    """
    from zol.adapt.methods import METHODS
    from zol.bench.unseen import NAME

    run(NAME, models, methods or tuple(name for name in METHODS if name != "zol-paper"), grid)
