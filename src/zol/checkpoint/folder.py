"""Checkpoints are data, never code: a folder of safetensors and JSON.

    model.safetensors    the weights that test time needs
    config.json          model, settings, architecture, measure, versions, data fingerprint, hash of weights
    prompt.safetensors   a small sample of next states and start states, so that the folder can be
                         prompted on its own (optional)
    dynamics.safetensors a learned world to rehearse latents in (optional, see zol.train.learned_world)
    README.md            the model card

The architecture is written out, so a checkpoint opens where the code that trained its model is not installed.
Every file is written under a temporary name, flushed and renamed, so a reader never sees half of one; the
hash in config.json tells whether the weights beside it are the ones it describes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zol.checkpoint.model_card import model_card
from zol.checkpoint.schema import SCHEMA, stored_weights, upgraded
from zol.common.config import ConfigError
from zol.common.errors import CheckpointError
from zol.common.files import read_tensors, refuse_pickles, write_bytes, write_tensors
from zol.common.provenance import versions
from zol.fields import Layout, States
from zol.imagination.learned_world import LearnedWorld
from zol.models.architecture import NetworkConfig
from zol.models.base import model_hash, tensors_hash
from zol.models.foreign import is_foreign, load_foreign
from zol.models.foreign.hub import fetch, is_hub
from zol.models.network import Network
from zol.tasks import humenv

CONFIG, WEIGHTS, PROMPT = "config.json", "model.safetensors", "prompt.safetensors"
DYNAMICS = "dynamics.safetensors"
# what save() itself says about a network, beside the facts it is given
OWN_FACTS = ("schema", "network", "sizes", "weights", "versions")


@dataclass(frozen=True)
class Checkpoint:
    """A model and what is known about it.

    ``facts`` holds at least ``model`` (its name in ``MODELS``, or the project it comes from), ``settings``
    (what it was trained with, if known), ``network`` (its architecture), ``sizes``, and the hash of its
    ``weights``.
    """

    model: Network
    facts: Mapping[str, Any]
    prompt: Mapping[str, Tensor]  # "obs" [N, D], "starts" [S, D], perhaps "action" and "physics"; or empty
    dynamics: LearnedWorld | None = None

    @property
    def default_prompt(self) -> str:
        """How a reward becomes a latent of this model unless somebody says otherwise (zol.prompt)."""
        plain = "least_squares" if self.model.config.successor_features else "correlation"
        return str(self.facts.get("prompt", plain))

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
    known = description(model) | {"versions": versions()} | dict(facts or {})
    write_tensors(folder / WEIGHTS, model.state_dict())
    if prompt:
        write_tensors(folder / PROMPT, prompt)
    write_bytes(folder / "README.md", model_card(known).encode())
    write_bytes(folder / CONFIG, (json.dumps(known, indent=2) + "\n").encode())
    return folder


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
    if is_foreign(path):
        place, origin = fetch(str(path)) if is_hub(path) else (path, {"origin": str(path)})
        return _adopt(load_foreign(place, discount=discount), origin)
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a checkpoint folder (with {CONFIG} and {WEIGHTS})")
    facts = upgraded(_read_facts(folder / CONFIG), folder)
    if discount is not None:
        raise CheckpointError(f"{path} records its own discount: load it without discount=")
    try:
        with torch.device("meta"):  # shapes are compared before any memory is taken
            model = Network(NetworkConfig(**facts["network"]))
    except (ConfigError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    tensors = read_tensors(folder / WEIGHTS)
    assign(model, stored_weights(tensors, facts), folder / WEIGHTS)
    if tensors_hash(tensors) != facts.get("weights"):
        raise CheckpointError(
            f"{folder}: {WEIGHTS} and {CONFIG} belong to different saves; "
            "copy the folder again, or resume the training run that wrote it"
        )
    sample, learned = folder / PROMPT, folder / DYNAMICS
    return Checkpoint(
        named_columns(model.freeze()),
        facts | {"weights": model_hash(model)},
        read_tensors(sample) if sample.exists() else {},
        LearnedWorld.load(learned) if learned.exists() else None,
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


def assign(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Load tensors into a module; a missing, extra or misshapen one is named."""
    own = module.state_dict()
    for name in own:
        if name not in tensors:
            raise CheckpointError(f"{source} lacks the tensor '{name}' {tuple(own[name].shape)}")
    for name, tensor in tensors.items():
        if name not in own:
            raise CheckpointError(f"{source} holds '{name}', which its configuration has no place for")
        if tensor.shape != own[name].shape:
            raise CheckpointError(
                f"{source}: '{name}' has shape {tuple(tensor.shape)}, its configuration says "
                f"{tuple(own[name].shape)}"
            )
    if any(tensor.is_meta for tensor in own.values()):  # not in memory yet: the file's tensors are taken over
        module.load_state_dict({n: t.to(own[n].dtype) for n, t in tensors.items()}, assign=True)
    else:
        module.load_state_dict(dict(tensors))


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: is this a checkpoint folder?") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} holds a {type(facts).__name__}: it was not written by zol")
    return facts
