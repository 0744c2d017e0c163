"""``zol bench rehearsal``: the imagined search with one setting changed at a time."""

from pathlib import Path

import tyro

from zol.cli.bench_exorl import Grid, run


def rehearsal(models: tyro.conf.Positional[tuple[Path, ...]], grid: Grid = Grid()) -> None:  # noqa: B008
    """Horizon, ensemble, noise, pessimism, worth, bootstrap and trust of ``rehearse``, on the ExORL tasks.

    Results stand in the store under their own name, beside those of zol bench exorl; zol report shows both.

    Args:
        models: checkpoint folders or names of the zoo, with learned worlds
        grid: the test
    """
    from zol.adapt.methods import REHEARSALS

    run("rehearsal", models, ("fb", "rehearse", *REHEARSALS), grid)
