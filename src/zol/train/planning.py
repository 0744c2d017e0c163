"""What is to be trained on what: the settings that data, preset and a checkpoint to start from suggest.

Nothing is trained here, and what cannot work is said here, before any time is spent on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from zol import checkpoint
from zol.checkpoint import Checkpoint, zoo
from zol.common.errors import DataError, ZolError
from zol.data import Dataset
from zol.models import MODELS
from zol.models.foreign.hub import is_hub
from zol.models.pretraining import Pretraining
from zol.models.settings import FROM_DATA, RATES, settings_of
from zol.session import Agent
from zol.train import presets
from zol.train.loop import TrainConfig
from zol.worlds import ALIASES, make
from zol.worlds.base import World


@dataclass(frozen=True)
class Plan:
    """What is to be trained on what, and the settings that this suggests."""

    entry: Pretraining
    preset: str
    training: TrainConfig
    settings: Mapping[str, Any]  # of the model, without those that the data decide
    dynamics_steps: int
    dataset: Dataset | None = None
    start: Checkpoint | None = None
    acts_in: str | None = None  # the world of a model that learns online
    others: Mapping[str, Any] = field(default_factory=dict)  # what else the preset says

    @property
    def world_name(self) -> str | None:
        """The world that the data are from, or that the model acts in."""
        return self.acts_in or _world_name(self.dataset)

    @cached_property
    def world(self) -> World:
        """That world; an error says why it cannot be made."""
        if self.world_name is None:
            raise DataError(
                "the data do not name the world they are from, so nothing can be tested: --episodes 0"
            )
        return make(self.world_name)


def entry_of(model: str) -> Pretraining:
    """What the registry knows of a model; a near miss is suggested."""
    return MODELS[model]


def plan(
    model: str = "fb",
    data: Dataset | str | Path | None = None,
    *,
    preset: str = "auto",
    device: str = "auto",
    start_from: Agent | Checkpoint | str | Path | None = None,
    learning_rate: float | None = None,
    acts_in: str | None = None,
) -> Plan:
    """Find the settings for a model on these data; what cannot work is said before any time is spent."""
    entry = entry_of(model)
    dataset = data if isinstance(data, Dataset) or data is None else Dataset.open(data)
    start = None if start_from is None else _open(start_from)
    if start is not None:
        _require_fit(entry, start, dataset)
    known = presets.read(entry.presets)
    world = acts_in or _world_name(dataset)
    gpu = torch.cuda.is_available() and device != "cpu"
    chosen = presets.choose(known, preset, world, gpu=gpu)
    values = presets.settings(known, chosen, world)
    own = entry.config.model_fields
    if start is not None:
        values |= _settings_of(start, entry)
    if learning_rate is not None:  # one rate for all networks, unless theirs are given too
        values |= {name: learning_rate for name in RATES if name in own}
    settings = {name: v for name, v in values.items() if name in own and name not in FROM_DATA}
    found = Plan(
        entry,
        chosen,
        TrainConfig(**{name: v for name, v in values.items() if name in TrainConfig.model_fields}),
        settings,
        int(values.get("dynamics_steps", 0)),
        dataset,
        start,
        acts_in,
        {name: v for name, v in values.items() if name not in own and name not in TrainConfig.model_fields},
    )
    if "discount" not in settings:
        settings["discount"] = _discount(found)
    return found


def _open(start: Agent | Checkpoint | str | Path) -> Checkpoint:
    if isinstance(start, Agent):
        return start.checkpoint
    if isinstance(start, Checkpoint):
        return start
    return checkpoint.load(start if is_hub(start) else zoo.find(start))


def _require_fit(entry: Pretraining, start: Checkpoint, dataset: Dataset | None) -> None:
    """A checkpoint can be trained further by this learner, on these data."""
    entry.learner.accept(start.model.config)
    sizes = (start.model.obs_dim, start.model.action_dim)
    if dataset is not None and (dataset.obs_dim, dataset.action_dim) != sizes:
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, the "
            f"checkpoint to start from has {sizes[0]} and {sizes[1]}: were they recorded in its world?"
        )


def _settings_of(start: Checkpoint, entry: Pretraining) -> dict[str, Any]:
    """What a checkpoint to start from says about settings: those it was trained with, and its networks."""
    network = start.model.config
    same = start.facts["settings"] if start.facts["model"] == entry.name else {}
    noise = {"action_std": network.action_std} if network.action_std > 0 else {}
    return dict(same) | settings_of(network) | {"discount": network.discount} | noise


def _world_name(dataset: Dataset | None) -> str | None:
    name = None if dataset is None else dataset.provenance.get("world")
    return None if name is None else ALIASES.get(str(name), str(name))


def _discount(found: Plan) -> float:
    """That of the world, if it can be asked, else the model's own default."""
    try:
        return found.world.discount
    except ZolError:  # not named, unknown, or not installed
        return float(found.entry.config.model_fields["discount"].default)
