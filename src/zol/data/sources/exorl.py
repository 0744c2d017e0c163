"""ExORL: the unsupervised collections of Yarats et al. (2022), as zips or unpacked folders.

An episode is a file ``episode_<index>_<length>.npz`` with T + 1 rows of observation, action, reward,
discount and physics. ExORL shifts time by one: row 0 is a dummy (zero action), and the action in row t is
the one that *led to* observation t. Here it moves up one row, to the state in which it was taken:

    ExORL     observation  s0  s1  s2        zol     obs     s0  s1  s2
              action        ·  a0  a1                action  a0  a1   ·
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray
from rich.progress import Progress

from zol.common import provenance
from zol.common.errors import DataError, unknown_name
from zol.common.progress import Ticker
from zol.common.reading import read_bytes, regular_file
from zol.data.dataset import Dataset
from zol.data.episodes import flags
from zol.data.sources.expansion import Expansion
from zol.data.sources.npz import BROKEN, read_npz
from zol.data.writer import building, episode_rows

URL = "https://dl.fbaipublicfiles.com/exorl/{domain}/{algorithm}.zip"
DOMAINS = ("cartpole", "cheetah", "jaco", "point_mass_maze", "quadruped", "walker")
ALGORITHMS = ("aps", "diayn", "disagreement", "icm", "icm_apt", "proto", "random", "rnd", "smm")
NAME = re.compile(r"episode_(\d+)_(\d+)\.npz")


class _Files(Protocol):
    """A zip or a folder: names, and the bytes behind them with how many they are on disk."""

    size: int

    def names(self) -> list[str]: ...
    def read(self, name: str, expansion: Expansion) -> tuple[bytes, int]: ...


class _Zip:
    def __init__(self, path: Path) -> None:
        self.size = regular_file(path, DataError)
        try:
            self._zip = zipfile.ZipFile(path)
        except BROKEN as error:
            raise DataError(
                f"{path} is not a zip file: it is something else, or a download that stopped early"
            ) from error
        self.names = self._zip.namelist

    def read(self, name: str, expansion: Expansion) -> tuple[bytes, int]:
        member = self._zip.getinfo(name)
        stored = min(member.compress_size, self.size)
        expansion.add(member.file_size, stored, name)
        return self._zip.read(member), stored


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = sum(found.stat().st_size for found in path.rglob("*.npz") if found.is_file())

    def names(self) -> list[str]:
        return [str(p.relative_to(self._path)) for p in self._path.rglob("*.npz")]

    def read(self, name: str, expansion: Expansion) -> tuple[bytes, int]:
        data = read_bytes(self._path / name, self.size, DataError)
        return data, len(data)


def parse(name: str) -> tuple[str, str]:
    """``exorl/<domain>/<algorithm>`` → domain and algorithm; near misses are suggested."""
    parts = name.removeprefix("exorl/").split("/")
    if len(parts) != 2:
        raise DataError(f"'{name}' does not name an ExORL set; write exorl/<domain>/<algorithm>")
    domain, algorithm = parts
    if domain not in DOMAINS:
        raise DataError(unknown_name("ExORL domain", domain, DOMAINS))
    if algorithm not in ALGORITHMS:
        raise DataError(unknown_name("ExORL algorithm", algorithm, ALGORITHMS))
    return domain, algorithm


def find_local(folder: Path, domain: str, algorithm: str) -> Path:
    """The zip or folder of a set in a directory of downloads, for machines without internet."""
    stem = folder / domain / algorithm
    places = [stem.with_suffix(".zip"), stem / "buffer", stem, folder / f"{domain}_{algorithm}.zip"]
    for place in places:
        if place.exists():
            return place
    raise DataError(f"no {domain}/{algorithm} in {folder}: looked for {', '.join(map(str, places))}")


def import_exorl(
    source: str | Path,
    out: str | Path,
    *,
    world: str | None = None,
    episodes: int | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Convert a zip or folder of ExORL episodes into a dataset at ``out``, in numerical order.

    ``episodes`` takes only the first so many; ``sha256`` of the source is noted in the provenance. Rewards
    are kept as the extra column ``reward`` (four columns in the maze, one per corner), simulator states as
    ``physics``.
    """
    source = Path(source)
    if not source.exists():
        raise DataError(f"{source} does not exist")
    files: _Files = _Folder(source) if source.is_dir() else _Zip(source)
    found = _sorted_episodes(files.names())
    if not found:
        raise DataError(
            f"{source} holds no files called episode_<index>_<length>.npz: it is something else, or a "
            "download that stopped early"
        )
    if episodes is not None and len(found) < episodes:
        raise DataError(f"{source} holds {len(found)} episodes, {episodes} were asked for")
    chosen = found[:episodes]
    facts = provenance.of_data(
        "exorl", world=world, file=source.name, sha256=sha256, episodes=len(chosen), variant="exorl-raw"
    )
    bar = Ticker(progress, "importing", len(chosen), note="episodes")
    unpacked = Expansion(files.size)
    with building(Path(out), facts) as writer:
        for first in range(0, len(chosen), 50):
            part = chosen[first : first + 50]
            writer.append_rows(
                [_read_episode(source, files, name, length, unpacked) for name, length in part]
            )
            bar.advance(len(part))
    return Dataset.open(out)


def _sorted_episodes(names: list[str]) -> list[tuple[str, int]]:
    """Episode files by number (text order would put 10 before 9), with the lengths they promise."""
    matches = [(NAME.fullmatch(Path(name).name), name) for name in names]
    ordered = sorted((int(m[1]), name, int(m[2])) for m, name in matches if m)
    for (number, one, _), (again, other, _) in pairwise(ordered):
        if number == again:
            raise DataError(f"there are two files for episode {number}: {one} and {other}")
    return [(name, length) for _, name, length in ordered]


def _read_episode(
    source: Path, files: _Files, name: str, length: int, unpacked: Expansion
) -> dict[str, NDArray[Any]]:
    where = f"{name} in {source}"
    try:
        data, stored = files.read(name, unpacked)
        arrays = read_npz(BytesIO(data), unpacked, stored, where)
    except DataError:
        raise
    except BROKEN as error:
        raise DataError(f"{where} is damaged or cut short: copy or download it again") from error
    return convert(arrays, where, length)


def convert(
    arrays: Mapping[str, NDArray[Any]], where: str, length: int | None = None
) -> dict[str, NDArray[Any]]:
    """One ExORL episode as rows of ours."""
    missing = [key for key in ("observation", "action", "discount") if key not in arrays]
    if missing:
        raise DataError(f"{where} lacks '{missing[0]}'; it has {', '.join(sorted(arrays)) or 'nothing'}")
    steps = len(arrays["action"]) - 1 if length is None else length
    for key, values in arrays.items():
        if values.ndim == 0 or len(values) != steps + 1:
            raise DataError(
                f"'{key}' of {where} has shape {values.shape}; {steps} steps need {steps + 1} rows"
            )
    ended = ~flags(f"discount of {where}", arrays["discount"], steps + 1)[1:]
    if ended[:-1].any():
        raise DataError(f"{where} is terminated at step {int(ended.argmax())} but goes on for {steps} steps")
    extras = dict(_extras(arrays))
    try:
        return episode_rows(arrays["observation"], arrays["action"][1:], terminated=bool(ended[-1]), **extras)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _extras(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, NDArray[Any]]]:
    for key, values in arrays.items():
        if key == "reward":
            rewards = values.reshape(len(values), -1)[1:]
            yield key, rewards[:, 0] if rewards.shape[1] == 1 else rewards
        elif key == "physics":
            yield key, values
