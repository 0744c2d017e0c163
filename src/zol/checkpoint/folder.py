"""Checkpoints are data, never code: a folder of safetensors and JSON.

    model.safetensors    the weights that test time needs
    config.json          kind, configuration, measure convention, versions, data fingerprint, weight hash
    prompt.safetensors   a small sample of next states and start states, so that the folder can be
                         prompted on its own (optional)
    dynamics.safetensors a learned world to rehearse latents in (optional, see zol.train.learned_world)
    README.md            the model card

Every file is written under a temporary name, flushed and renamed, so a reader never sees half of one; the
hash in config.json tells whether the weights beside it are the ones it describes.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zol.checkpoint.model_card import model_card
from zol.common.errors import CheckpointError, unknown_name
from zol.common.files import read_tensors, refuse_pickles, write_bytes, write_tensors
from zol.common.provenance import versions
from zol.fields import Layout, States
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import model_hash
from zol.models.fb import FB, FBConfig
from zol.models.foreign import is_foreign, load_foreign
from zol.models.network import Composite, CompositeConfig

SCHEMA = 1
DYNAMICS = "dynamics.safetensors"
# what save() itself says about a model, beside the facts it is given
OWN_FACTS = ("schema", "kind", "config", "sizes", "measure", "weights", "versions")
# kind: (its configuration, its class)
KINDS: dict[str, tuple[type[Any], type[Any]]] = {
    "fb": (FBConfig, FB),
    "composite": (CompositeConfig, Composite),
}


AnyModel = FB | Composite


@dataclass(frozen=True)
class Checkpoint:
    """A model and what is known about it."""

    model: AnyModel
    facts: Mapping[str, Any]
    prompt: Mapping[str, Tensor]  # "obs" [N, D], "starts" [S, D], perhaps "action" and "physics"; or empty
    dynamics: LearnedWorld | None = None

    def sample(self, layout: Layout) -> States:
        """The states that travel with the checkpoint, ready to be labelled by a task."""
        if "obs" not in self.prompt:
            raise CheckpointError(
                "this checkpoint carries no sample of states (prompt.safetensors): label states of your own, "
                "Evidence.gather(dataset, tasks, layout)"
            )
        return States(self.prompt["obs"], layout, self.prompt.get("action"), self.prompt.get("physics"))


def save(
    model: AnyModel,
    path: str | Path,
    *,
    prompt: Mapping[str, Tensor] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint folder and return its path."""
    folder = Path(path)
    description = {
        "schema": SCHEMA,
        "kind": model.kind,
        "config": model.config.model_dump(),
        "sizes": [model.obs_dim, model.action_dim, model.z_dim],
        "measure": asdict(model.measure),
        "weights": model_hash(model),
        "versions": versions(),
        **(facts or {}),
    }
    write_tensors(folder / "model.safetensors", model.state_dict())
    if prompt:
        write_tensors(folder / "prompt.safetensors", prompt)
    write_bytes(folder / "README.md", model_card(description).encode())
    write_bytes(folder / "config.json", (json.dumps(description, indent=2) + "\n").encode())
    return folder


def load(path: str | Path, *, discount: float | None = None) -> Checkpoint:
    """Read a checkpoint folder that :func:`save` wrote, or one of Meta Motivo, td_jepa or BFM-Zero.

    ``hf://org/name`` fetches one from the hub. ``discount`` is for other projects' models that do not
    record the one they were trained with.
    """
    refuse_pickles(Path(path))
    if is_foreign(path):
        return _adopt(load_foreign(path, discount=discount), str(path))
    if discount is not None:
        raise CheckpointError(f"{path} records its own discount: load it without discount=")
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a checkpoint folder (with config.json and model.safetensors)")
    facts = _read_facts(folder / "config.json")
    if facts.get("kind") not in KINDS:
        raise CheckpointError(f"{folder}: " + unknown_name("model kind", str(facts.get("kind")), KINDS))
    if facts.get("schema", 0) > SCHEMA:
        raise CheckpointError(
            f"{folder} has format {facts['schema']}, this zol reads up to {SCHEMA}: update it"
        )
    config_type, model_type = KINDS[facts["kind"]]
    model = model_type(config_type(**facts["config"]))
    assign(model, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
    if model_hash(model) != facts.get("weights"):
        raise CheckpointError(
            f"{folder}: model.safetensors and config.json belong to different saves; "
            "copy the folder again, or resume the training run that wrote it"
        )
    sample = folder / "prompt.safetensors"
    learned = folder / DYNAMICS
    return Checkpoint(
        model.eval(),
        facts,
        read_tensors(sample) if sample.exists() else {},
        LearnedWorld.load(learned) if learned.exists() else None,
    )


def _adopt(model: Composite, source: str) -> Checkpoint:
    """Another project's model as a checkpoint; nothing is known of its data."""
    facts = {"kind": model.kind, "config": model.config.model_dump(), "weights": model_hash(model)}
    return Checkpoint(model, facts | {"title": f"{model.config.source} model", "origin": source}, {})


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
    module.load_state_dict(dict(tensors))


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: is this a checkpoint folder?") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("config"), dict):
        raise CheckpointError(f"{path} has no 'config' section: it was not written by zol")
    return facts
