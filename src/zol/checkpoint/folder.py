"""Checkpoints are data, never code: a folder of safetensors and JSON.

    model.safetensors    the weights that test time needs
    config.json          model, settings, architecture, measure, versions, data fingerprint, hash of weights,
                         digests of the rest (zol.checkpoint.integrity)
    prompt.safetensors   a small sample of next states and start states, so that the folder can be
                         prompted on its own (optional)
    dynamics.safetensors a learned world to rehearse latents in (optional, see zol.train.learned_world)
    README.md            the model card

The architecture is written out, so a checkpoint opens where the code that trained its model is not installed.
Every file is written under a temporary name, flushed and renamed, so a reader never sees half of one; the
hash in config.json tells whether the weights beside it are the ones it describes.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from zol.checkpoint.integrity import digests, proven
from zol.checkpoint.model_card import model_card
from zol.checkpoint.sample import read_sample, write_sample
from zol.checkpoint.schema import SCHEMA, names_today, upgraded
from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, unknown_name
from zol.common.files import write_bytes
from zol.common.provenance import versions
from zol.common.reading import read_json
from zol.common.tensors import (
    assign,
    check_finite,
    compare_shapes,
    open_tensors,
    refuse_pickles,
    shapes_of,
    write_tensors,
)
from zol.fields import Layout, States
from zol.imagination.learned_world import LearnedWorld
from zol.models.architecture import NetworkConfig
from zol.models.base import model_hash, tensors_hash
from zol.models.foreign import is_foreign, load_foreign
from zol.models.foreign.hub import fetch, is_hub
from zol.models.network import Network
from zol.prompt import RewardPrompt
from zol.tasks import humenv

CONFIG, WEIGHTS, PROMPT = "config.json", "model.safetensors", "prompt.safetensors"
DYNAMICS = "dynamics.safetensors"
UNFINISHED = "run.json"  # what a training run writes first (zol.train.run_folder)
# what save() itself says about a network, beside the facts it is given
OWN_FACTS = ("schema", "network", "sizes", "weights", "versions", "digests", "integrity")


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A model and what is known about it.

    ``facts`` holds at least ``model`` (its name in ``MODELS``, or the project it comes from), ``settings``
    (what it was trained with, if known), ``network`` (its architecture), ``sizes``, and the hash of its
    ``weights``.
    """

    model: Network
    facts: Mapping[str, Any]
    prompt: Mapping[str, Tensor]
    """a sample, or nothing: obs [N, D], starts [S, D], perhaps action, before, terminated and physics"""
    dynamics: LearnedWorld | None = None

    def __repr__(self) -> str:
        m, parts = self.model, []
        parts.append(
            f"a sample of {len(self.prompt['obs']):,} states" if "obs" in self.prompt else "no sample"
        )
        parts.append("no learned world" if self.dynamics is None else "a learned world")
        return (
            f"Checkpoint({self.facts['model']} model {self.facts['weights']} of {m.obs_dim} observations, "
            f"{m.action_dim} actions and latents of {m.z_dim}; {', '.join(parts)}); "
            "zol.Agent(checkpoint) can be asked for behaviour"
        )

    @property
    def default_prompt(self) -> RewardPrompt:
        """How a reward becomes a latent of this model unless somebody says otherwise (zol.prompt)."""
        plain = "least_squares" if self.model.config.successor_features else "correlation"
        named = self.facts.get("prompt", plain)
        for known in get_args(RewardPrompt):
            if named == known:
                return known
        raise CheckpointError(unknown_name("prompt", str(named), get_args(RewardPrompt)))

    def sample(self, layout: Layout) -> States:
        """The states that travel with the checkpoint, ready to be labelled by a task."""
        if "obs" not in self.prompt:
            raise CheckpointError(
                "this checkpoint carries no sample of states (prompt.safetensors): label states of your own, "
                "Evidence.gather(dataset, tasks, layout)"
            )
        return States(self.prompt["obs"], layout, self.prompt.get("action"), self.prompt.get("physics"))


def save(
    model: Network,
    path: str | Path,
    *,
    prompt: Mapping[str, Tensor] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint folder and return its path.

    ``facts`` are what is known beyond the network: ``model`` and ``settings`` say what trained it and how.
    """
    folder = Path(path)
    known = _without_nan(description(model) | {"versions": versions()} | dict(facts or {}))
    weights = model.state_dict()
    for name, tensor in weights.items():
        check_finite(tensor, f"'{name}' of the model for {folder}")
    write_tensors(folder / WEIGHTS, weights)
    sample = write_sample(folder / PROMPT, prompt, model.obs_dim, model.action_dim) if prompt else {}
    write_bytes(folder / "README.md", model_card(known).encode(errors="backslashreplace"))
    known["digests"] = digests(known, sample)
    write_bytes(folder / CONFIG, (json.dumps(known, indent=2) + "\n").encode())
    return folder


def _without_nan(value: Any) -> Any:
    """Facts such as metrics with null for what is not a number: JSON has no NaN, and readers refuse it."""
    if isinstance(value, Mapping):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def description(model: Network) -> dict[str, Any]:
    """What a network says about itself in ``config.json``."""
    return {
        "schema": SCHEMA,
        "model": model.config.source,
        "settings": {},
        "network": model.config.model_dump(mode="json"),
        "sizes": [model.obs_dim, model.action_dim, model.z_dim],
        "weights": model_hash(model),
    }


def load(path: str | Path, *, discount: float | None = None) -> Checkpoint:
    """Read a checkpoint folder that :func:`save` wrote, or one of Meta Motivo, td_jepa or BFM-Zero.

    ``hf://org/name`` fetches one from the hub. ``discount`` is for other projects' models that do not
    record the one they were trained with.
    """
    refuse_pickles(Path(path))
    place, origin = fetch(str(path)) if is_hub(path) else (Path(path), {"origin": str(path)})
    if is_foreign(place):
        return _adopt(load_foreign(place, discount=discount), origin)
    found = _load_own(place, path, discount)
    return replace(found, facts={**found.facts, **origin}) if is_hub(path) else found


def _load_own(folder: Path, path: str | Path, discount: float | None) -> Checkpoint:
    """A folder that :func:`save` wrote; ``path`` is what the user called it."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a checkpoint folder (with {CONFIG} and {WEIGHTS})")
    if not (folder / CONFIG).exists() and (folder / UNFINISHED).exists():
        raise CheckpointError(
            f"{folder} holds a training run that is not finished, so there is no checkpoint yet: the zol "
            "train command that began it continues it (zol train show tells how far it is)"
        )
    written = read_json(folder / CONFIG)
    facts = upgraded(written, folder)
    if discount is not None:
        raise CheckpointError(f"{path} records its own discount: load it without discount=")
    model = _built(facts, folder)
    tensors, stored_hash = _read_weights(model, folder / WEIGHTS)
    if stored_hash != facts.get("weights"):
        raise CheckpointError(
            f"{folder}: {WEIGHTS} and {CONFIG} belong to different saves; "
            "copy the folder again, or resume the training run that wrote it"
        )
    assign(model, tensors, folder / WEIGHTS)
    sample, learned = folder / PROMPT, folder / DYNAMICS
    prompt = read_sample(sample, model.obs_dim, model.action_dim) if sample.exists() else {}
    world = LearnedWorld.load(learned) if learned.exists() else None
    if world is not None:
        _require_same_sizes(world, model, learned)
    return Checkpoint(
        named_columns(model.freeze()),
        facts | {"weights": model_hash(model), "integrity": proven(written, prompt, folder)},
        prompt,
        world,
    )


def _built(facts: Mapping[str, Any], folder: Path) -> Network:
    """The network that the facts describe, without memory for its weights."""
    try:
        with torch.device("meta"):
            return Network(NetworkConfig(**facts["network"]))
    except (ConfigError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def _read_weights(model: Network, path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors under the names they have today, and their hash under those they were stored with.

    Shapes are compared before any memory is taken.
    """
    with open_tensors(path) as file:
        names = names_today(file.shapes, model.config)
        compare_shapes(shapes_of(model), {names[n]: shape for n, shape in file.shapes.items()}, path)
        stored = {name: file.read(name) for name in file.shapes}
    return {names[name]: value for name, value in stored.items()}, tensors_hash(stored)


def _require_same_sizes(world: LearnedWorld, model: Network, path: Path) -> None:
    found, expected = (world.dynamics.obs_dim, world.dynamics.action_dim), (model.obs_dim, model.action_dim)
    if found != expected:
        raise CheckpointError(
            f"{path} is a world of {found[0]} observations and {found[1]} actions, the model beside it has "
            f"{expected[0]} and {expected[1]}: it belongs to another checkpoint"
        )


def _adopt(model: Network, origin: Mapping[str, Any]) -> Checkpoint:
    """Another project's model as a checkpoint; nothing is known of its data."""
    facts = description(model) | {"title": f"{model.config.source} model"} | dict(origin)
    return Checkpoint(named_columns(model), facts, {})


def named_columns(model: Network) -> Network:
    """Give a model of HumEnv's humanoid, recognised by its sizes, the names of its observation's columns."""
    if (model.obs_dim, model.action_dim) == (humenv.LAYOUT.obs_dim, humenv.ACTIONS) and model.config.single:
        model.layout = humenv.LAYOUT
    return model
