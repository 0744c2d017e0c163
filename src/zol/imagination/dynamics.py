r"""A small ensemble that predicts what happens next, trained on the same reward-free data as the model.

Every member k maps a state x and an action a to the next state,

    x' = clamp( x + σ_Δ · f_k((x − m)/σ_x, a),  low, high )

and is fitted by least squares on the normalised change (x' − x)/σ_Δ, all on the same batches from their own
initial weights. m, σ_x, σ_Δ, low and high are statistics of the data, taken once: bounds keep a long
imagined rollout from leaving what was ever seen.

The state x is the observation followed by the fields that rewards may ask for but observations do not
determine (``Layout.hidden``): a centre-of-mass height, say, is predicted along with the rest.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from zol.common import parallel
from zol.common.config import Config
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec, Dataset
from zol.fields import Layout, States
from zol.models.architecture import COLUMNS, DEPTH, FIELDS, MEMBERS, WIDTH
from zol.models.layers import EnsembleLayerNorm, EnsembleLinear, initialise
from zol.models.optimisation import Adam, named_state, restore_state

STATISTICS_SAMPLE = 50_000


class DynamicsConfig(Config):
    """Sizes and settings of a dynamics ensemble."""

    obs_dim: int = Field(gt=0, le=COLUMNS)
    """columns of an observation"""
    action_dim: int = Field(gt=0, le=COLUMNS)
    """columns of an action"""
    hidden_fields: tuple[str, ...] = Field(default=(), max_length=FIELDS)
    """names of the fields that are predicted beyond the observation"""
    hidden: int = Field(default=256, gt=0, le=WIDTH)
    """width"""
    layers: int = Field(default=3, ge=1, le=DEPTH)
    """hidden layers"""
    members: int = Field(default=4, ge=1, le=MEMBERS)
    """P: networks in the ensemble"""
    learning_rate: float = Field(default=3e-3, gt=0)
    """of Adam"""

    @property
    def state_dim(self) -> int:
        """X: observation columns and hidden fields."""
        return self.obs_dim + len(self.hidden_fields)


class Dynamics(nn.Module):
    """The ensemble. States ``[..., X]`` are raw, as the world gives them."""

    mean: Tensor
    scale: Tensor
    change: Tensor
    low: Tensor
    high: Tensor
    error: Tensor

    def __init__(self, config: DynamicsConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        sizes = [config.state_dim + config.action_dim, *[config.hidden] * config.layers]
        layers: list[nn.Module] = []
        for n_in, n_out in pairwise(sizes):
            linear = EnsembleLinear(n_in, n_out, config.members)
            layers += [linear, EnsembleLayerNorm(n_out, config.members), nn.SiLU()]
        self.net = nn.Sequential(*layers, EnsembleLinear(sizes[-1], config.state_dim, config.members))
        zeros, ones = torch.zeros(config.state_dim), torch.ones(config.state_dim)
        statistics = {"mean": zeros, "scale": ones, "change": ones, "low": zeros, "high": zeros}
        for name, value in {**statistics, "error": zeros}.items():
            self.register_buffer(name, value.clone())
        if not self.mean.is_meta:  # weights that are about to be loaded need no beginning
            initialise(self, generator if generator is not None else torch.Generator().manual_seed(0))

    @property
    def members(self) -> int:
        """P, the number of networks in the ensemble."""
        return self.config.members

    def first(self, members: int) -> "Dynamics":
        """An ensemble of the first ``members`` networks."""
        if not 1 <= members <= self.members:
            raise DataError(f"this ensemble has {self.members} networks, {members} were asked for")
        part = Dynamics(self.config.updated(members=members))
        own = {n: v[:members] if n.startswith("net.") else v for n, v in self.state_dict().items()}
        part.load_state_dict(own)
        return part.eval()

    @property
    def obs_dim(self) -> int:
        """Columns of an observation."""
        return self.config.obs_dim

    @property
    def action_dim(self) -> int:
        """Columns of an action."""
        return self.config.action_dim

    @torch.no_grad()
    def measure(self, states: Tensor, following: Tensor) -> None:
        """Take the statistics of normalisation from pairs of states ``[N, X]``."""
        self.mean.copy_(states.mean(0))
        self.scale.copy_(states.std(0).clamp_min(1e-6))
        self.change.copy_((following - states).std(0).clamp_min(1e-6))
        both = torch.cat([states, following])
        self.low.copy_(both.amin(0))
        self.high.copy_(both.amax(0))

    def changes(self, states: Tensor, actions: Tensor) -> Tensor:
        """The predicted change in units of σ_Δ, ``[P, N, X]``, of rows ``[N, …]`` or ``[P, N, …]``."""
        inputs = torch.cat([(states - self.mean) / self.scale, actions], dim=-1)
        out: Tensor = self.net(inputs)
        return out

    def forward(self, states: Tensor, actions: Tensor, noise: Tensor | None = None) -> Tensor:
        """Next states ``[P, N, X]``; rows ``[P, N, …]`` are each member's own.

        ``noise`` ``[P, N, X]`` is added in units of the held-out error of every column.
        """
        change = self.changes(states, actions)
        if noise is not None:
            change = change + self.error * noise
        return (states + self.change * change).clamp(self.low, self.high)


def full_state(states: States, fields: tuple[str, ...]) -> Tensor:
    """Observation and hidden fields side by side, ``[..., X]``."""
    if not fields:
        return states.obs
    return torch.cat([states.obs, *(states[name].to(states.obs.dtype).unsqueeze(-1) for name in fields)], -1)


def pairs(batch: Batch, layout: Layout, fields: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """States before and after each transition, ``[N, X]`` each."""
    return full_state(batch.departed(layout), fields), full_state(batch.arrived(layout), fields)


class DynamicsLearner:
    """Trains a :class:`Dynamics` by least squares on normalised changes."""

    def __init__(self, model: Dynamics, dataset: Dataset, layout: Layout) -> None:
        self.model, self.layout = model, layout
        self.checked = None  # not a model of behaviour, so none of its health checks apply
        self.facts: Mapping[str, Any] = {}
        self.shown = {"loss": "loss"}
        self.turning_points = ()
        self.batches = BatchSpec(physics=bool(model.config.hidden_fields))
        self.optimiser = Adam(model.parameters(), model.config.learning_rate)
        sample = dataset.sample(min(len(dataset), STATISTICS_SAMPLE), torch.Generator().manual_seed(0))
        model.measure(*pairs(sample, layout, model.config.hidden_fields))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration."""
        return {f"model.{name}": value for name, value in self.model.config.model_dump(mode="json").items()}

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step of every member on the same transitions."""
        del generator  # nothing here is random; the argument is part of what a learner is
        model = self.model
        before, after = pairs(batch, self.layout, model.config.hidden_fields)
        wanted = (after - before) / model.change
        error = parallel.mean((model.changes(before, batch.action) - wanted).square())
        # Members share the batch but not their weights, so the sum over P trains each on its own error.
        (model.members * error).backward()
        self.optimiser.step_and_clear()
        return {"loss": error.detach()}

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rate from now on."""
        self.optimiser.scale_learning_rate(scale)

    def note_progress(self, share: float) -> None:
        """Nothing here depends on it."""

    def state_dict(self) -> dict[str, Tensor]:
        """Optimiser moments, as flat named tensors."""
        return named_state({"optimiser": self.optimiser})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        restore_state({"optimiser": self.optimiser}, state)
