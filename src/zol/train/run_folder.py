"""The folder of a training run: what is in it, and how a run continues in it after any kind of end.

    run.json               settings, data, and for every session command, versions, commit and hardware
    training.safetensors   the last good state: weights, targets, optimiser moments, generator, step
    metrics.jsonl          one line per step that was logged or tested, none twice, none missing
    run.lock               held by the process that trains

Everything an exact resume needs is in one file that is replaced atomically, and the settings it was made
with are in its header. Metrics reach the disk before the state that follows them; lines beyond the state
are cut off on resume, as is a torn last line.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from zol.common import files, provenance
from zol.common.errors import CheckpointError
from zol.common.reading import parse_json, read_json, regular_file
from zol.common.tensors import counted, read_metadata, read_tensors, write_tensors
from zol.data.disk import HEADER

STATE, METRICS, RUN, LOCK = "training.safetensors", "metrics.jsonl", "run.json", "run.lock"
LINE_LIMIT = 1 << 20  # bytes of a line of metrics, which has a few hundred
Line = dict[str, float]


class RunFolder:
    """The files of a run, held by one process; use it as a context manager."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.saved_step: int | None = None  # of the last good state
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> "RunFolder":
        if (self.path / HEADER).exists():
            raise CheckpointError(f"{self.path} holds a dataset: choose another folder for the run")
        if (self.path / "model.safetensors").exists() and not (self.path / STATE).exists():
            raise CheckpointError(
                f"{self.path} holds a checkpoint without its training state, which training would "
                "overwrite: choose another folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = files.lock(self.path / LOCK)
        files.remove_temporaries(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def settings(self) -> dict[str, Any] | None:
        """What the state was trained with, one value per name; None if there is no state yet."""
        if not (self.path / STATE).exists():
            return None
        header = read_metadata(self.path / STATE, ("settings", "step"))
        self.saved_step = counted(header, "step", self.path / STATE)
        return parse_json(header["settings"], f"'settings' of {self.path / STATE}")

    def state(self) -> dict[str, Tensor]:
        """The tensors of the last good state."""
        return read_tensors(self.path / STATE)

    def save(self, step: int, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> None:
        """Replace the last good state, after what was logged before it."""
        with self.saying_what_is_safe():
            files.flush(self.path / METRICS)
            header = {"step": str(step), "settings": json.dumps(settings)}
            write_tensors(self.path / STATE, tensors, header)
        self.saved_step = step

    def log(self, line: Line) -> None:
        """Append a line to the metrics."""
        with self.saying_what_is_safe():
            files.append_line(self.path / METRICS, json.dumps(line))

    def rewind(self, step: int | None) -> list[Line]:
        """The metrics up to a step (none for ``None``); lines after it would be logged again, so they go."""
        kept = [line for line in read_metrics(self.path) if step is not None and line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        with self.saying_what_is_safe():
            files.write_bytes(self.path / METRICS, text.encode())
        return kept

    def open_session(self, settings: Mapping[str, Any], facts: Mapping[str, Any], step: int) -> None:
        """Note in ``run.json`` what is about to run, beside the sessions before it."""
        before = self.sessions() if step > 0 else []
        session = {"from_step": step, **provenance.of_numbers()}
        found = {**facts, "settings": dict(settings), "sessions": [*before, session]}
        with self.saying_what_is_safe():
            files.write_bytes(self.path / RUN, (json.dumps(found, indent=2) + "\n").encode())

    def sessions(self) -> list[dict[str, Any]]:
        """What is known of each process that trained here, in order."""
        try:
            found = read_json(self.path / RUN).get("sessions")
        except CheckpointError:  # a note for readers: training does not depend on it
            return []
        return found if isinstance(found, list) else []

    @contextmanager
    def saying_what_is_safe(self) -> Iterator[None]:
        """Inside the block the error of a full disk also says which state is kept and how to go on."""
        try:
            yield
        except files.DiskFull as error:
            kept = "nothing was saved yet" if self.saved_step is None else f"step {self.saved_step} is safe"
            raise files.DiskFull(f"{error}; {kept}: make room, then the same command continues") from error


def read_metrics(path: str | Path) -> list[Line]:
    """The lines of a run's ``metrics.jsonl``; one that a kill or a power cut tore is the end.

    Any other line that is not an object of numbers is an error: to pass over it would lose lines in silence.
    """
    file = Path(path) / METRICS
    lines: list[Line] = []
    if not file.exists():
        return lines
    regular_file(file)
    with file.open("rb") as content:
        while text := content.readline(LINE_LIMIT):
            where = f"line {len(lines) + 1} of {file}"
            try:
                line = parse_json(text, where, nan=True)
            except CheckpointError:
                if b"\0" in text or (len(text) < LINE_LIMIT and not text.endswith(b"\n")):
                    break
                raise
            for name, value in ({"step": None} | line).items():
                if not isinstance(value, int | float):
                    raise CheckpointError(f"{where} has {name[:80]} = {value!r:.80}; expected a number")
            lines.append(line)
    return lines


def shown_metrics(path: str | Path) -> dict[str, str]:
    """Which metrics the model of a run wants to be watched by, title → name; none if the run does not say."""
    try:
        found = read_json(Path(path) / RUN).get("shown")
    except CheckpointError:  # a note for readers, which may be missing
        return {}
    return {title: str(name) for title, name in found.items()} if isinstance(found, dict) else {}


def require_same(before: Mapping[str, Any], now: Mapping[str, Any], free: set[str], where: Path) -> None:
    """Stop if a setting that decides the weights differs from what a state was trained with."""
    for name in sorted(before.keys() | now.keys()):
        if name not in free and before.get(name) != now.get(name):
            raise CheckpointError(
                f"{where} was trained with {name}={before.get(name)}, now {now.get(name)} is asked for: "
                "resume with the same value, or choose another folder"
            )
