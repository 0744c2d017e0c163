"""zol data: import, show, check, film, resimulate, cut and merge datasets."""

from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from tyro.conf import Positional

from zol.cli.worlds import field_table
from zol.collect.ant_config import AntConfig
from zol.common.animation import require_webp, write_animation
from zol.common.errors import DataError, ZolError
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset, coverage
from zol.data.merging import merge as merged
from zol.data.sources import import_dataset
from zol.fields import States
from zol.tasks import earnings
from zol.worlds import World, make

EARNS = 0.01  # a state earns if it is paid this share of the largest reward


def import_(
    source: Positional[str],
    /,
    out: Path,
    world: str | None = None,
    episodes: int | None = None,
    from_dir: Path | None = None,
    cache: Path = Path("downloads"),
    sha256: str | None = None,
    unverified: bool = False,
    mirror: tuple[str, ...] = (),
) -> None:
    """Convert a foreign dataset into one of zol's.

    Args:
        source: exorl/DOMAIN/ALGORITHM, ogbench/NAME (or NAME-val), minari:NAME, an npz or HDF5 file, or ExORL
            episodes (zip, folder).
        out: Folder of the new set.
        world: Name of the world the data come from, if the source does not tell.
        episodes: Take only the first so many (ExORL, OGBench; td_jepa takes 1000 of OGBench's).
        from_dir: Folder with downloads, for machines without internet.
        cache: Where downloads are kept.
        sha256: Checksum that the download must have.
        unverified: Take a download without a checksum.
        mirror: Further addresses of the same download.
    """
    if world is not None:
        make(world)  # a misspelt world is better found before the work than after it
    with progress_bar() as progress:
        import_dataset(
            source,
            out,
            world=world,
            episodes=episodes,
            from_dir=from_dir,
            cache=cache,
            sha256=sha256,
            unverified=unverified,
            mirrors=mirror,
            progress=progress,
        )
    show(out)


def show(path: Positional[Path], /, world: str | None = None) -> None:
    """Print what a set holds: sizes, provenance, coverage, what its states earn, what every column means.

    Args:
        path: Folder of the set.
        world: Name of the world, if the set does not know it.
    """
    data, console = Dataset.open(path), terminal()
    if len(data) == 0:
        raise DataError(f"{path} holds no whole episode yet: let its writer go on, or make it anew")
    known = _world_of(data, world)
    console.print(
        f"{path}: {len(data):,} transitions in {data.episodes:,} episodes", highlight=False, soft_wrap=True
    )
    lengths = data.lengths
    console.print(
        f"episode length {lengths.min()}–{lengths.max()}, {int(_terminated(data)):,} terminated, "
        f"{len(data.starts()):,} start states "
        + ("(first states of the episodes)" if data.resets is None else "(drawn from the world)")
    )
    console.print(f"fingerprint {data.fingerprint()}", highlight=False, soft_wrap=True)
    for name, value in data.provenance.items():
        if name not in ("coverage", "config"):
            console.print(f"{name}: {value}", highlight=False, soft_wrap=True)
    console.print(_columns(data))
    sample = data.sample(min(len(data), coverage.STATES), torch.Generator().manual_seed(0))
    scale = coverage.stored_scale(data.provenance, data.obs_dim)
    scale = coverage.scale_of(sample.next_obs) if scale is None else scale
    cells = coverage.occupied_cells(sample.next_obs, scale)
    console.print(f"coverage: {cells:,} cells occupied by {len(sample):,} states")
    if known is not None:
        console.print(_spreads(known, sample.next_obs))
        console.print(_earnings(known, sample.arrived(known.layout)))
        console.print(field_table(known.layout))


def ant_expert(out: Path, config: AntConfig = AntConfig()) -> None:  # noqa: B008
    """Train an ant that walks where it is told, which antmaze data are made with; goes on with an unfinished
    one.

    Args:
        out: Folder of the training; the expert is expert.safetensors in it.
        config: How it is trained.
    """
    from zol.collect.ant_training import train_expert, walk_test

    with progress_bar() as progress:
        expert = train_expert(out, config, progress=progress)
    walked = walk_test(expert, 360, torch.Generator().manual_seed(config.seed + 1))
    terminal().print(f"{out / 'expert.safetensors'}: {walked.words()}", highlight=False, soft_wrap=True)


def check(path: Positional[Path], /) -> None:
    """Read a whole set and compare every episode with its digest.

    Args:
        path: Folder of the set.
    """
    data = Dataset.open(path)
    with progress_bar() as progress:
        data.verify(progress=progress)
    print(f"{path}: {data.episodes:,} episodes are intact")


def resimulate(path: Positional[Path], /, out: Path, world: str | None = None, batch: int = 250) -> None:
    """Replay the stored actions under the installed simulator and report the drift.

    Args:
        path: Folder of the set.
        out: Folder of the new set.
        world: Name of the world, if the set does not know it.
        batch: Episodes replayed at once.
    """
    from zol.collect.resimulate import resimulate as replay

    data = Dataset.open(path)
    known = _world_of(data, world)
    if known is None:
        raise DataError(f"{path} does not say which world it comes from: pass --world NAME")
    with progress_bar() as progress:
        _, drift = replay(data, known, out, batch=batch, progress=progress)
    print("\n".join(drift.lines()))


def film(
    path: Positional[Path],
    /,
    out: Path,
    episode: int = 0,
    begin: int = 0,
    steps: int = 200,
    every: int = 2,
    size: int = 240,
) -> None:
    """Film an episode of a set, in real time, as a moving picture.

    Args:
        path: Folder of a set with simulator states.
        out: The picture, a .webp file.
        episode: Which one.
        begin: Its first step that is shown.
        steps: How many steps are shown.
        every: Draw every so many steps.
        size: Pixels, across and down.
    """
    from zol.film import require_drawable

    require_webp(out)
    data = Dataset.open(path)
    world = _world_of(data, None)
    if world is None or "physics" not in data.columns:
        raise DataError(
            f"{path} has no simulator states of a world that is known here, so it cannot be drawn"
        )
    if not 0 <= episode < data.episodes:
        raise DataError(f"{path} has episodes 0 to {data.episodes - 1}, {episode} was asked for")
    first, length = int(data.first_rows[episode]), int(data.lengths[episode])
    rows = first + np.arange(begin, min(begin + steps, length) + 1, every)
    if len(rows) == 0:
        raise DataError(f"episode {episode} of {path} has {length} steps: begin before its end")
    states = torch.from_numpy(np.array(data.columns["physics"][rows], dtype=np.float64))
    drawn = require_drawable(world)
    with drawn.painter(size, size) as painter:
        pictures = [painter.frame(state) for state in states]
    write_animation(out, pictures, 1 / (every * drawn.control_timestep))
    print(f"{out}: {len(pictures)} pictures of episode {episode}, steps {begin} to {rows[-1] - first}")


def subset(path: Positional[Path], /, out: Path, episodes: int, seed: int | None = None) -> None:
    """Copy some episodes into a new set.

    Args:
        path: Folder of the set.
        out: Folder of the new set.
        episodes: How many.
        seed: Draw them at random; without it, take the first ones.
    """
    data = Dataset.open(path)
    if not 1 <= episodes <= data.episodes:
        raise DataError(f"{path} has {data.episodes} episodes, {episodes} were asked for")
    chosen = np.arange(episodes)
    if seed is not None:
        chosen = np.sort(np.random.default_rng(seed).choice(data.episodes, episodes, replace=False))
    with progress_bar() as progress:
        part = data.save(out, which=chosen, progress=progress)
    print(f"{out}: {len(part):,} transitions in {part.episodes:,} episodes, fingerprint {part.fingerprint()}")


def merge(paths: Positional[tuple[Path, ...]], /, out: Path) -> None:
    """Copy all episodes of several sets of one world into a new set.

    Args:
        paths: Folders of the sets, two or more.
        out: Folder of the new set.
    """
    with progress_bar() as progress:
        whole, left = merged([Dataset.open(path) for path in paths], out, progress=progress)
    size = f"{len(whole):,} transitions in {whole.episodes:,} episodes, fingerprint {whole.fingerprint()}"
    print(f"{out}: {size}")
    if left:
        print(f"left out, because not every set has them: {', '.join(left)}")


def _world_of(data: Dataset, name: str | None) -> World | None:
    """The world that was named, or that the set names if it is one we know."""
    if name is not None:
        return make(name)
    try:
        return make(str(data.provenance.get("world", "")))
    except ZolError:  # unknown here, or its extra is not installed
        return None


def _terminated(data: Dataset) -> int:
    return int(data.columns["terminated"][data.first_rows + data.lengths - 1].sum())


def _columns(data: Dataset) -> Table:
    table = Table("column", "type", "shape of a row", "on disk")
    for name, column in data.columns.items():
        table.add_row(name, str(column.dtype), str(column.shape[1:]), f"{column.nbytes / 1e6:,.1f} MB")
    return table


def _spreads(world: World, obs: torch.Tensor) -> Table:
    table = Table("field", "1–99 % range")
    for name, spread in coverage.spreads(obs, world.layout).items():
        table.add_row(name, f"{spread:.3g}")
    return table


def share(part: float) -> str:
    """A share in per cent with two digits, never in powers of ten."""
    if 0 < part < 1e-4:
        return "< 0.01 %"
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def _earnings(world: World, states: States) -> Table:
    """What the world's tasks pay here; one that pays the same everywhere nothing offline can serve."""
    table = Table("task", "mean reward", "median", "99 %", "largest", "states that earn")
    levels = torch.tensor([0.5, 0.99, 1.0], dtype=torch.float64)
    for name, rewards in earnings(states, world.tasks.values()).items():
        median, high, most = torch.quantile(rewards.double(), levels).tolist()
        earning = float((rewards > EARNS * rewards.abs().max()).double().mean())
        alike = "all alike" if rewards.max() == rewards.min() else share(earning)
        table.add_row(name, f"{rewards.mean():.3g}", f"{median:.3g}", f"{high:.3g}", f"{most:.3g}", alike)
    return table
