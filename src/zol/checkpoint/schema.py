"""Formats of ``config.json`` over time: whatever zol ever wrote is read as what it writes today.

schema 1   ``kind`` and ``config``: the settings of an FB model, or the architecture of another project's
           model ("composite"), whose normalisers were called ``normalisers.<field>``
schema 2   ``model``, ``settings`` and ``network``: what trained it, how, and the architecture written out
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from zol.common.errors import CheckpointError, unknown_name
from zol.models import MODELS

SCHEMA = 2


def upgraded(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint in today's format."""
    schema = facts.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise CheckpointError(f"{folder}: the format (schema) is {schema!r}; expected a number from 1 on")
    if schema > SCHEMA:
        raise CheckpointError(f"{folder} has format {schema}, this zol reads up to {SCHEMA}: update it")
    needed = ("network",) if schema == SCHEMA else ("config",)
    for name in needed:
        if not isinstance(facts.get(name), dict):
            raise CheckpointError(f"{folder}/config.json has no '{name}' section: the file is damaged")
    return dict(facts) if schema == SCHEMA else _from_first(facts, folder)


def stored_weights(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file under the names that they have today."""
    prefix = "normalisers."
    fields = facts["network"].get("observation", [])
    single = f"{prefix}{fields[0]['name']}." if len(fields) == 1 else prefix
    now = "normaliser."
    return {
        (now + name.removeprefix(single) if name.startswith(single) else name): value
        for name, value in tensors.items()
    }


def _from_first(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    kind, config, measure = facts.get("kind"), facts["config"], facts.get("measure")
    rest = {name: value for name, value in facts.items() if name not in ("kind", "config", "measure")}
    if kind == "fb":
        entry = MODELS["fb"]
        network = entry.learner.architecture(entry.config(**config)).model_dump(mode="json")
        found = {"model": "fb", "settings": config}
    elif kind == "composite":
        network = {name: value for name, value in config.items() if name != "parts"}
        network["observation"] = config.get("parts", [])
        if config.get("centred"):  # its measure followed from this; see zol.models.network
            network["measure"] = {"offset": 1.0}
        found = {"model": config.get("source", kind), "settings": {}}
    else:
        raise CheckpointError(f"{folder}: " + unknown_name("model kind", str(kind), ("fb", "composite")))
    if isinstance(measure, dict):
        network["measure"] = measure
    return rest | found | {"schema": SCHEMA, "network": network}
