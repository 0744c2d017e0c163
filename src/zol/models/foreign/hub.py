"""Checkpoints from the Hugging Face hub: ``hf://org/name`` or ``hf://org/name@revision``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zol.common.errors import CheckpointError
from zol.common.extras import require

ORIGIN = ("origin", "revision", "pinned")  # facts about where a checkpoint comes from
COMMIT = re.compile(r"[0-9a-f]{40}")
ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
# Never *.pkl or *.pth: what is not downloaded cannot be opened by mistake. The data files (gigabytes)
# are left out as well.
WANTED = [
    "*config.json",
    "*init_kwargs.json",
    "*model.safetensors",
    "prompt.safetensors",
    "dynamics.safetensors",
]


def is_hub(path: str | Path) -> bool:
    """Does this name something on the hub?"""
    return isinstance(path, str) and path.startswith("hf://")


def fetch(address: str) -> tuple[Path, dict[str, Any]]:
    """The local folder of a hub repository, and facts about it for whoever asks where a model comes from.

    ``revision`` is the commit that was fetched, as far as the hub's own library tells it; ``pinned`` says
    whether the address named it. A branch or a tag may be another commit tomorrow.
    """
    folder, asked = download(address), address.partition("@")[2]
    commit = folder.name if COMMIT.fullmatch(folder.name) else None
    facts: dict[str, Any] = {"origin": address, "pinned": COMMIT.fullmatch(asked) is not None}
    return folder, facts | {"revision": commit or asked or "unknown"}


def described(facts: Mapping[str, Any]) -> str:
    """Where on the hub a checkpoint comes from, in a few words."""
    note = "" if facts.get("pinned") else ", not pinned"
    return f"{str(facts['origin']).partition('@')[0]} at {facts['revision']}{note}"


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
