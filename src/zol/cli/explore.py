"""zol explore: fill a dataset from a world without any reward."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from zol.collect.explore import ExploreConfig
from zol.collect.explore import explore as run
from zol.collect.practised import PractisedConfig, practise
from zol.collect.rnd import RNDConfig
from zol.common.errors import DataError
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.worlds import World, make


def explore(
    world: Annotated[str, Positional, arg(metavar="WORLD")],
    /,
    out: Path,
    steps: int = 1_000_000,
    how: Literal["rnd", "random", "practice", "navigate", "stitch", "explore", "play"] = "rnd",
    envs: int = 50,
    seed: int = 0,
    expert: Path | None = None,
    model: Annotated[str | None, arg(metavar="CHECKPOINT")] = None,
    latent_steps: int = 125,
    noise_range: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None,
    random_share: float = 0.0,
    rnd: RNDConfig = RNDConfig(),  # noqa: B008
) -> None:
    """Collect transitions: seek novelty (RND), act at random, let a trained model act, or follow a recipe;
    continues an unfinished run exactly.

    Args:
        world: Name of the world, such as walker.
        out: Folder of the set; one that holds an unfinished exploration is continued.
        steps: Transitions to collect, rounded up to whole episodes.
        how: Seek novelty, act uniformly at random, let the policies of a trained model act (practice), or
            follow one of OGBench's recipes: navigate, stitch and explore for its mazes, play for its table.
        envs: Environments stepped together.
        seed: Of start states, actions and networks.
        expert: File of an ant that walks where it is told (zol data ant-expert trains one), for recipes of
            antmaze worlds; the one that comes with zol unless told.
        model: Checkpoint folder or zoo name whose policies act, for --how practice.
        latent_steps: Steps before another latent takes over, for --how practice.
        noise_range: Standard deviations of the noise on actions in the first and in the last environment, for
            rnd (else --noise in all of them) and practice (else 0.1 0.4).
        random_share: Share of the environments that act uniformly at random, for rnd and practice.
        rnd: The agent that seeks novelty.
    """
    chosen = make(world)
    size: dict[str, Any] = {"steps": steps, "envs": envs, "seed": seed}
    if (how == "practice") != (model is not None):
        raise DataError("--how practice lets a trained model act, and nothing else does: --model CHECKPOINT")
    if model is not None:
        noise = {} if noise_range is None else {"noise_range": noise_range}
        acting = PractisedConfig(latent_steps=latent_steps, random_share=random_share, **noise)
        _by_practice(chosen, model, out, acting, size)
        return
    if how not in ("rnd", "random"):
        _by_recipe(chosen, how, out, expert, size)
        return
    config = ExploreConfig(how=how, noise_range=noise_range, random_share=random_share, rnd=rnd, **size)
    with progress_bar() as progress:
        data = run(chosen, out, config, progress=progress)
    found: Any = data.provenance["coverage"]
    console = terminal()
    console.print(
        f"{out}: {len(data):,} transitions in {data.episodes:,} episodes", highlight=False, soft_wrap=True
    )
    console.print(_coverage_table(found, how))


def _by_practice(
    world: World, model: str, out: Path, config: PractisedConfig, size: Mapping[str, Any]
) -> None:
    from zol.session import load

    found = load(model).checkpoint
    with progress_bar() as progress:
        states = found.prompt.get("obs")
        data = practise(world, found.model, found.facts, states, out, config, progress=progress, **size)
    _tell(data, out)


def _by_recipe(world: World, how: str, out: Path, expert: Path | None, size: Mapping[str, Any]) -> None:
    from zol.collect.recipes import recipe
    from zol.collect.scripted import collect

    script = recipe(world, how, expert)
    with progress_bar() as progress:
        data = collect(world, script, out, how=how, progress=progress, **size)
    _tell(data, out)


def _tell(data: Dataset, out: Path) -> None:
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
