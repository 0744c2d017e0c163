"""A way of pretraining as the registry ``MODELS`` knows it.

To add one, write a configuration (zol.models.settings) and a learner (zol.models.learner) in one file and
describe them there by a :class:`Pretraining`; then add a line to ``MODELS`` (zol.models) and a file of
presets. Command line, checkpoints, presets, learning curves and the documentation's tables read the entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from zol.models.learner import NetworkLearner
from zol.models.network import Network
from zol.models.settings import PretrainingConfig


@dataclass(frozen=True)
class Pretraining:
    """One entry of ``MODELS``: all that the rest of zol has to know about a way of pretraining."""

    name: str
    """as in ``zol train NAME``"""
    title: str
    """what is learned, in a few words"""
    config: type[PretrainingConfig]
    """its settings, flat: every field but ``obs_dim`` and ``action_dim`` is a flag of the command line"""
    learner: type[NetworkLearner]
    """losses, targets and optimisers; it also says which architecture belongs to a configuration"""
    presets: str
    """settings that are known to work: package and file, such as ``zol.train.presets:fb.toml``"""
    prompt: str = "correlation"
    """how a reward becomes a latent by default (zol.prompt)"""
    online: Literal["", "demonstrations", "practice"] = ""
    """it acts in a world while it learns, and needs no data: beside demonstrations (zol.train.online), or for
    rewards of a prior (zol.train.practice)"""

    def prompt_of(self, model: Network) -> str:
        """How a reward becomes a latent of this network: E[B r] where its features are made orthonormal."""
        return "correlation" if model.config.sphered else self.prompt

    @property
    def metrics(self) -> Mapping[str, str]:
        """What is worth watching while it trains: title → metric."""
        return self.learner.shown

    def network(self, config: PretrainingConfig, generator: torch.Generator | None = None) -> Network:
        """A network with initial weights, drawn from the generator (from one of seed 0 without it)."""
        generator = generator if generator is not None else torch.Generator().manual_seed(0)
        return Network(self.learner.architecture(config), generator)
