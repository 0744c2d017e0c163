"""zol explore: fill a dataset from a world without any reward."""

from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from zol.collect.explore import ExploreConfig
from zol.collect.explore import explore as run
from zol.collect.rnd import RNDConfig
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.worlds import make


def explore(
    world: Annotated[str, Positional, arg(metavar="WORLD")],
    /,
    out: Path,
    steps: int = 1_000_000,
    how: Literal["rnd", "random"] = "rnd",
    envs: int = 50,
    seed: int = 0,
    rnd: RNDConfig = RNDConfig(),  # noqa: B008
) -> None:
    """Collect transitions by seeking novelty (RND) or at random; continues an unfinished run exactly.

    Args:
        world: Name of the world, such as walker.
        out: Folder of the set; one that holds an unfinished exploration is continued.
        steps: Transitions to collect, rounded up to whole episodes.
        how: Seek novelty, or act uniformly at random.
        envs: Environments stepped together.
        seed: Of start states, actions and networks.
        rnd: The agent that seeks novelty.
    """
    config = ExploreConfig(steps=steps, how=how, envs=envs, seed=seed, rnd=rnd)
    with progress_bar() as progress:
        data = run(make(world), out, config, progress=progress)
    found: Any = data.provenance["coverage"]
    console = terminal()
    console.print(
        f"{out}: {len(data):,} transitions in {data.episodes:,} episodes", highlight=False, soft_wrap=True
    )
    console.print(_coverage_table(found, how))


def _coverage_table(found: Any, how: str) -> Table:
    here, random = found["here"], found["random"]
    table = Table(
        "coverage", how, "random actions", title=f"{here['states']:,} states of each; spread = 1–99 % range"
    )
    table.add_row("occupied cells", f"{here['cells']:,}", f"{random['cells']:,}")
    for name, spread in here["spread"].items():
        table.add_row(name, f"{spread:.3g}", f"{random['spread'][name]:.3g}")
    return table
