"""A set that a process fills while it does something else, and repeats exactly after a kill.

Episodes are committed as they end. A process that was killed begins again at its last saved state, which
counts fewer episodes than the set may hold by then: those are played once more, and compared instead of
written twice.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from zol.common.errors import DataError
from zol.data import Dataset, disk
from zol.data.writer import DatasetWriter

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
    """Episodes on disk, of which the first ``done`` count."""

    def __init__(self, path: Path, provenance: Mapping[str, Any], resets: ArrayLike) -> None:
        self.path = path
        self.writer = DatasetWriter(path, provenance=provenance, resets=resets)
        self.done = 0
        self._opened: Dataset | None = None

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the set on disk says of itself."""
        return self.writer.provenance

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

    def dataset(self) -> Dataset:
        """What counts of the set, as it is now."""
        if self._opened is None or self._opened.episodes != self.done:
            self._opened = Dataset.open(self.path).first(self.done)
        return self._opened

    def close(self) -> None:
        """Release the files; everything committed is on disk."""
        self.writer.close()
