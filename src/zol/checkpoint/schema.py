"""Formats of ``config.json`` over time: whatever zol ever wrote is read as what it writes today.

schema 1   ``kind`` and ``config``: the settings of an FB model, or the architecture of another project's
           model ("composite"), whose normalisers were called ``normalisers.<field>``
schema 2   ``model``, ``settings`` and ``network``: what trained it, how, and the architecture written out
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, unknown_name
from zol.models import MODELS
from zol.models.architecture import NetworkConfig

SCHEMA = 2


def upgraded(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The facts of a checkpoint in today's format."""
    schema = facts.get("schema")
    if type(schema) is not int or schema < 1:
        raise CheckpointError(f"{folder}: the format (schema) is {schema!r}; expected a number from 1 on")
    if schema > SCHEMA:
        raise CheckpointError(f"{folder} has format {schema}, this zol reads up to {SCHEMA}: update it")
    needed = ("network",) if schema == SCHEMA else ("config",)
    for name in needed:
        if not isinstance(facts.get(name), dict):
            raise CheckpointError(f"{folder}/config.json has no '{name}' section: the file is damaged")
    return dict(facts) if schema == SCHEMA else _from_first(facts, folder)


def names_today(stored: Iterable[str], network: NetworkConfig) -> dict[str, str]:
    """The names of tensors in a file, and the names that they have today."""
    prefix = "normalisers."
    old = f"{prefix}{network.observation[0].name}." if network.single else prefix
    return {n: "normaliser." + n.removeprefix(old) if n.startswith(old) else n for n in stored}


def _from_first(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    kind, config, measure = facts.get("kind"), facts["config"], facts.get("measure")
    rest = {name: value for name, value in facts.items() if name not in ("kind", "config", "measure")}
    if kind == "fb":
        entry = MODELS["fb"]
        try:
            network = entry.learner.architecture(entry.config(**config)).model_dump(mode="json")
        except ConfigError as error:
            raise CheckpointError(f"{folder}/config.json: {error}") from error
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
