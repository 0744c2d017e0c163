"""TensorBoard as a second reader of the metrics: the same numbers as ``metrics.jsonl``, as event files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zol.common.extras import require

FOLDER = "tensorboard"


def require_tensorboard() -> Any:
    """The class that writes event files; it can be asked for before anything is trained."""
    require("tensorboard", "tensorboard", "--tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


class MetricsWriter:
    """Writes event files below a run's folder; what an earlier session wrote after ``step`` is hidden."""

    def __init__(self, run: Path, step: int) -> None:
        self._writer = require_tensorboard()(str(run / FOLDER), purge_step=step + 1)

    def write(self, line: Mapping[str, float]) -> None:
        """Write one line of metrics: every number but the step itself, under its own name."""
        for name, value in line.items():
            if name != "step":
                tag = name if "/" in name else f"training/{name}"
                self._writer.add_scalar(tag, value, int(line["step"]))

    def close(self) -> None:
        """Write what is still buffered."""
        self._writer.close()
