"""A set that a process fills while it does something else, and repeats exactly after a kill.

Episodes are committed as they end. A process that was killed begins again at its last saved state, which
counts fewer episodes than the set may hold by then: those are played once more, and compared instead of
written twice.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from zol.common import provenance
from zol.common.config import Config
from zol.common.errors import DataError
from zol.data import Dataset, disk
from zol.data.writer import DatasetWriter
from zol.worlds.base import World

RESETS = 1024  # start states of the world that are stored with a set
Rows = Mapping[str, NDArray[Any]]


def append_or_compare(writer: DatasetWriter, path: Path, done: int, episodes: Sequence[Rows]) -> None:
    """Make these the episodes after the first ``done``: those that the set holds already have to be equal."""
    known = min(len(episodes), max(0, writer.episodes - done))
    if known:
        stored = disk.read_index(path)["digest"][done : done + known]
        for number, (digest, rows) in enumerate(zip(stored, episodes, strict=False)):
            if bytes(digest) != disk.episode_digest(rows):
                raise DataError(
                    f"episode {done + number} of {path} cannot be repeated exactly: it was made with other "
                    "versions, threads or hardware; continue there, or choose another folder"
                )
    writer.append_rows(episodes[known:])


class Recording:
    """Episodes of a world on disk, of which the first ``done`` count."""

    def __init__(
        self, world: World, folder: Path | None, config: Config, *, how: str, seed: int, **facts: Any
    ) -> None:
        """The set is in ``folder``, or in a temporary one; one that was begun with another ``config`` is
        refused."""
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        self.path = Path(self._temporary.name) / "set" if self._temporary is not None else Path(str(folder))
        settings = config.model_dump(mode="json")
        starts = world.reset(RESETS, torch.Generator().manual_seed(seed)).obs
        origin = provenance.of_data(how, world=world.name, how=how, seed=seed, config=settings, **facts)
        self.writer = DatasetWriter(self.path, provenance=origin, resets=starts.float().numpy())
        self.done = 0
        self._opened: Dataset | None = None
        made_with = self.provenance.get("config")
        if self.writer.episodes and made_with != settings:
            self.close()
            raise DataError(
                f"{self.path} was begun with other settings of {how} ({made_with}): continue with the same "
                "ones, or choose another folder"
            )

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the set on disk says of itself."""
        return self.writer.provenance

    @property
    def facts(self) -> dict[str, Any]:
        """What a checkpoint says about data that are this set."""
        data = self.dataset()
        return {"data": data.fingerprint(), "transitions": len(data)}

    def note(self, **facts: Any) -> None:
        """Add facts to the set's provenance."""
        self.writer.set_provenance(**facts)
        self._opened = None

    def commit(self, episodes: Sequence[Rows]) -> None:
        """Add whole episodes, or compare them with those that are there already."""
        if not episodes:
            return
        append_or_compare(self.writer, self.path, self.done, episodes)
        self.done += len(episodes)
        self._opened = None

    def rewind(self, done: int) -> None:
        """Let the first ``done`` episodes count, as a saved state says."""
        if done > self.writer.episodes:
            raise DataError(
                f"{self.path} has {self.writer.episodes} episodes, the training state counts {done}: restore "
                "the set, or choose another folder"
            )
        self.done = done

    def dataset(self) -> Dataset:
        """What counts of the set, as it is now; there has to be an episode."""
        if self._opened is None or self._opened.episodes != self.done:
            self._opened = Dataset.open(self.path).first(self.done)
        return self._opened

    def close(self) -> None:
        """Release the files; everything committed is on disk, unless the folder was a temporary one."""
        self.writer.close()
        if self._temporary is not None:
            self._temporary.cleanup()
