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
from zol.worlds import World, make


def explore(
    world: Annotated[str, Positional, arg(metavar="WORLD")],
    /,
    out: Path,
    steps: int = 1_000_000,
    how: Literal["rnd", "random", "navigate", "stitch", "explore", "play"] = "rnd",
    envs: int = 50,
    seed: int = 0,
    expert: Path | None = None,
    rnd: RNDConfig = RNDConfig(),  # noqa: B008
) -> None:
    """Collect transitions: seek novelty (RND), act at random, or follow a recipe; continues an unfinished run
    exactly.

    Args:
        world: Name of the world, such as walker.
        out: Folder of the set; one that holds an unfinished exploration is continued.
        steps: Transitions to collect, rounded up to whole episodes.
        how: Seek novelty, act uniformly at random, or follow one of OGBench's recipes: navigate, stitch and
        explore
            for its mazes, play for its table.
        envs: Environments stepped together.
        seed: Of start states, actions and networks.
        expert: File of an ant that walks where it is told (zol data ant-expert trains one), for recipes of
        antmaze
            worlds; the one that comes with zol unless told.
        rnd: The agent that seeks novelty.
    """
    if how not in ("rnd", "random"):
        _by_recipe(make(world), how, out, steps=steps, envs=envs, seed=seed, expert=expert)
        return
    config = ExploreConfig(steps=steps, how=how, envs=envs, seed=seed, rnd=rnd)
    with progress_bar() as progress:
        data = run(make(world), out, config, progress=progress)
    found: Any = data.provenance["coverage"]
    console = terminal()
    console.print(
        f"{out}: {len(data):,} transitions in {data.episodes:,} episodes", highlight=False, soft_wrap=True
    )
    console.print(_coverage_table(found, how))


def _by_recipe(
    world: World, how: str, out: Path, *, steps: int, envs: int, seed: int, expert: Path | None
) -> None:
    from zol.collect.recipes import recipe
    from zol.collect.scripted import collect

    script = recipe(world, how, expert)
    with progress_bar() as progress:
        data = collect(world, script, out, how=how, steps=steps, envs=envs, seed=seed, progress=progress)
    counts = ", ".join(f"{name} {count:,}" for name, count in data.provenance["counts"].items())
    terminal().print(
        f"{out}: {len(data):,} transitions in {data.episodes:,} episodes; {counts}",
        highlight=False,
        soft_wrap=True,
    )


def _coverage_table(found: Any, how: str) -> Table:
    here, random = found["here"], found["random"]
    table = Table(
        "coverage", how, "random actions", title=f"{here['states']:,} states of each; spread = 1–99 % range"
    )
    table.add_row("occupied cells", f"{here['cells']:,}", f"{random['cells']:,}")
    for name, spread in here["spread"].items():
        table.add_row(name, f"{spread:.3g}", f"{random['spread'][name]:.3g}")
    return table
