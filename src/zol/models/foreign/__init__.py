"""Checkpoints of other projects, opened as they are published.

    model = load_foreign("metamotivo-S-1")                    a folder as on the hub, or of an agent
    model = load_foreign("runs/fb_walker/checkpoint")         td_jepa: FB, HILP, TD-JEPA, flow-BC or not
    model = load_foreign("bfm-zero/model", discount=0.98)     BFM-Zero

Everything becomes a :class:`zol.models.network.Network`, which runs on the networks of
:mod:`zol.models.nets`. Only JSON and safetensors are read; pickles are never opened.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, DataError
from zol.common.reading import read_json
from zol.common.tensors import PICKLES, open_tensors, refuse_pickles
from zol.fields import Layout
from zol.models.foreign import bfm_zero, metamotivo, td_jepa
from zol.models.foreign.assemble import assemble, described
from zol.models.foreign.hub import download, is_hub
from zol.models.foreign.section import Section
from zol.models.network import Network

CONFIG, WEIGHTS = "config.json", "model.safetensors"


def is_foreign(path: str | Path) -> bool:
    """Does this look like a checkpoint of another project? Decided by its configs, not by its name.

    What :mod:`zol.checkpoint` writes says which format (``schema``) it is; a folder whose configs do not is
    somebody else's. Whether it can be opened is another question: :func:`load_foreign` says why not.
    """
    if is_hub(path):
        return True
    configs = [folder / CONFIG for folder in _places(Path(path)) if (folder / CONFIG).is_file()]
    return bool(configs) and "schema" not in read_json(configs[0])


def load_foreign(path: str | Path, *, discount: float | None = None, layout: Layout | None = None) -> Network:
    """Open a checkpoint of Meta Motivo, td_jepa or BFM-Zero; ``hf://org/name`` fetches it from the hub.

    ``discount`` overrides the recorded one, and is needed where none is recorded (model folders without
    their agent's ``config.json``). ``layout`` names the observation's columns.
    """
    folder = _model_folder(download(str(path)) if is_hub(path) else Path(path))
    config = Section(read_json(folder / CONFIG), CONFIG)
    if "archi" not in config:
        raise CheckpointError(
            f"{folder / CONFIG} has neither the 'schema' of a zol checkpoint nor the 'archi' of one of "
            "Meta Motivo, td_jepa or BFM-Zero: is it a checkpoint at all?"
        )
    gamma = discount if discount is not None else _discount(folder, config)
    with open_tensors(folder / WEIGHTS) as weights:
        try:
            if not config.name():
                plan = metamotivo.blueprint(config, gamma)
            elif bfm_zero.recognises(config):
                plan = bfm_zero.blueprint(config, gamma, folder, weights)
            else:
                plan = td_jepa.blueprint(config, gamma, folder, weights)
        except ConfigError as error:
            raise described(error, str(folder / CONFIG)) from error
        model = assemble(plan, weights)
    if layout is not None:
        if layout.obs_dim != model.obs_dim:
            raise DataError(f"the layout has {layout.obs_dim} columns, the model observes {model.obs_dim}")
        model.layout = layout
    return model


def flatten(observation: Mapping[str, Tensor], layout: Layout) -> Tensor:
    """One flat observation ``[..., D]`` from a dictionary of fields ``[..., size]``."""
    missing = [f.name for f in layout.fields if f.name not in observation]
    if missing:
        raise DataError(
            f"the observation lacks {', '.join(missing)}; given: {', '.join(observation)}. "
            "Entries that no network you call reads may be zeros"
        )
    for f in layout.fields:
        if observation[f.name].shape[-1] != f.size:
            raise DataError(
                f"'{f.name}' has {observation[f.name].shape[-1]} columns, the model reads {f.size}"
            )
    return torch.cat([observation[f.name] for f in layout.fields], dim=-1)


def _places(path: Path) -> list[Path]:
    """Where config and weights may be: in the given folder, or inside that of an agent or a run."""
    return [path, path / "model", path / "checkpoint" / "model", path / "model" / "checkpoint" / "model"]


def _model_folder(path: Path) -> Path:
    """The folder that holds config and weights."""
    refuse_pickles(path)
    for folder in _places(path):
        if (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file():
            return folder
    pickled = sorted(p.name for p in path.glob("*") if p.suffix in PICKLES) if path.is_dir() else []
    hint = f"; its pickles ({', '.join(pickled[:3])}) are never opened" if pickled else ""
    raise CheckpointError(f"{path} holds no {CONFIG} with a {WEIGHTS} beside it{hint}")


def _discount(folder: Path, config: Section) -> float:
    """γ from the agent's config one folder up, or what is known of the published models."""
    agent = folder.parent / CONFIG
    if folder.name == "model" and agent.is_file():
        section = Section(read_json(agent), f"{agent.parent.name}/{CONFIG}")
        if "train" in section and "discount" in section.section("train"):
            return section.section("train").number("discount")
    published = None if config.name() else metamotivo.published_discount(config)
    if published is None:
        raise CheckpointError(
            f"{folder} does not record the discount its model was trained with: pass discount=…, "
            "e.g. load_foreign(path, discount=0.98)"
        )
    return published
