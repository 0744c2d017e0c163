"""Weights & Biases as a further reader of the metrics: the same numbers as ``metrics.jsonl``."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zol.common.extras import require


def require_wandb() -> Any:
    """The package that sends metrics; it can be asked for before anything is trained."""
    return require("wandb", "wandb", "--wandb")


class WandbWriter:
    """Sends a run's metrics to a project; a resumed run goes on in the same place.

    ``WANDB_MODE=offline`` keeps everything below the folder of the run.
    """

    def __init__(self, project: str, run: Path, settings: Mapping[str, Any]) -> None:
        self._run = require_wandb().init(
            project=project,
            dir=str(run),
            name=run.name,
            # the same folder is the same run, in whichever process it is continued
            id=hashlib.blake2b(str(run.resolve()).encode(), digest_size=8).hexdigest(),
            resume="allow",
            config=dict(settings),
        )

    def write(self, line: Mapping[str, float]) -> None:
        """Send one line of metrics under the names that TensorBoard shows, too."""
        named = {n if "/" in n else f"training/{n}": v for n, v in line.items() if n != "step"}
        self._run.log(named, step=int(line["step"]))

    def close(self) -> None:
        """Send what is still buffered."""
        self._run.finish()
