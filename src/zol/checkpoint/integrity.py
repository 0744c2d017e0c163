"""What proves that the files of a checkpoint belong together: digests of architecture, settings and sample.

The hash of the weights (``weights`` in ``config.json``) is the identity of a model; latents and results refer
to it. It says nothing about the rest: a discount that somebody edited would change every ratio unnoticed. So
``config.json`` also has ``digests``. Checkpoints written before there were any still open, and their facts
say so (``integrity``).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from zol.common.errors import CheckpointError
from zol.models.base import tensors_hash

SECTIONS = ("network", "settings")
PROVEN = "weights, configuration and sample are those of one save"
UNPROVEN = (
    "only the weights are proven to be those that were saved: this checkpoint was written before "
    "configurations and samples had digests; save it again to add them"
)


def digests(facts: Mapping[str, Any], sample: Mapping[str, Tensor]) -> dict[str, str]:
    """One digest for each section of the facts that decides what a model computes, and one for its sample."""
    found = {name: _section(facts.get(name)) for name in SECTIONS}
    return found | {"sample": tensors_hash(sample)} if sample else found


def _section(value: Any) -> str:
    # Through JSON and back, so that a section has the same digest before it is written and after.
    canonical = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(canonical.encode(), digest_size=12).hexdigest()


def proven(facts: Mapping[str, Any], sample: Mapping[str, Tensor], folder: Path) -> str:
    """A sentence about what the digests prove; a section that differs from its digest is refused."""
    stored = facts.get("digests")
    if stored is None:
        return UNPROVEN
    if not isinstance(stored, dict):
        raise CheckpointError(f"{folder}: 'digests' is a {type(stored).__name__}; expected an object {{…}}")
    now = digests(facts, sample)
    for name in (*SECTIONS, *(["sample"] if sample else [])):
        if stored.get(name) != now[name]:
            what = "prompt.safetensors is" if name == "sample" else f"'{name}' in config.json is"
            raise CheckpointError(
                f"{folder}: {what} not what was saved with these weights. Restore the folder from a copy; to "
                "change a model on purpose, load it, build what you want and save that"
            )
    return PROVEN
