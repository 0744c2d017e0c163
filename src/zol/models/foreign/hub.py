"""Checkpoints from the Hugging Face hub: ``hf://org/name`` or ``hf://org/name@revision``."""

import re
from pathlib import Path

from zol.common.errors import CheckpointError
from zol.common.extras import require

ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
# Never *.pkl or *.pth: what is not downloaded cannot be opened by mistake. The data files (gigabytes)
# are left out as well.
WANTED = ["*config.json", "*init_kwargs.json", "*model.safetensors"]


def is_hub(path: str | Path) -> bool:
    """Does this name something on the hub?"""
    return isinstance(path, str) and path.startswith("hf://")


def download(address: str) -> Path:
    """The local folder of a hub repository; only configs and safetensors are fetched, and only once."""
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise CheckpointError(f"{address!r} is not hf://organisation/name or hf://organisation/name@revision")
    hub = require("huggingface_hub", "hub", "Opening a model from the hub")
    try:
        return Path(hub.snapshot_download(match[1], revision=match[2], allow_patterns=WANTED))
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        raise CheckpointError(
            f"could not fetch {address}: {error}. Without a connection, download the folder elsewhere "
            "and give its path"
        ) from error
