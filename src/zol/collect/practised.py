"""Data from the policies of a trained model, for ``zol explore --how practice``.

Latents are drawn as the model's learner draws those that it is trained for, with states of the model's own
sample as goals; those of ``prior_features`` are prompts of rewards of its prior. The model stays as it is.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from zol.collect.rounds import LatentPolicy, acting, partly_random, turns
from zol.common.config import Config
from zol.common.errors import DataError
from zol.fields import Layout, States
from zol.models import MODELS
from zol.models.network import Network
from zol.models.prior_features import PriorFeaturesLearner
from zol.worlds.base import World
from zol.worlds.episode import Policy

Latents = Callable[[int, torch.Generator], Tensor]
"""So many latents, ``[N, d]``, drawn by a generator."""


class PractisedConfig(Config):
    """How a trained model acts."""

    latent_steps: int = Field(default=125, ge=1)
    """steps before another latent takes over"""
    noise_range: tuple[float, float] = Field(default=(0.1, 0.4), strict=False)
    """standard deviations of the noise on actions in the first and in the last environment"""
    random_share: float = Field(default=0.0, ge=0, lt=1)
    """share of the environments that act uniformly at random"""


class Practised:
    """The script (zol.collect.scripted) of a model's own policies."""

    def __init__(self, world: World, model: Network, latents: Latents, config: PractisedConfig) -> None:
        if (world.layout.obs_dim, world.action_dim) != (model.obs_dim, model.action_dim):
            raise DataError(
                f"{world.name} has {world.layout.obs_dim} observation and {world.action_dim} action columns, "
                f"the model {model.obs_dim} and {model.action_dim}: it can act in the world of its data"
            )
        self.world, self.model, self.latents, self.config = world, model, latents, config
        self.steps = world.episode_length
        self._policy: Policy | None = None
        self._drawn = 0

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Start states of the world, and fresh latents."""
        c = self.config
        self.world.reset(n, generator)
        count, each = acting(n, c.random_share), turns(self.steps, c.latent_steps)
        self._drawn = count * each
        latents = self.latents(self._drawn, generator).view(count, each, -1)
        policy = LatentPolicy(self.model, latents, c.latent_steps, c.noise_range, generator)
        self._policy = partly_random(policy, self.world, count, generator)
        return self.world.physics

    def act(self, states: States) -> Tensor:
        """What the policies of these latents do."""
        assert self._policy is not None
        return self._policy(states)

    def end(self, states: States) -> Mapping[str, int]:
        """How many latents acted."""
        return {"latents": self._drawn}


def latents_of(
    model: Network, facts: Mapping[str, Any], states: Tensor | None, layout: Layout, seed: int
) -> Latents:
    """How latents of a checkpoint's model are drawn; without ``states`` ``[N, D]`` uniformly on the sphere.

    ``facts`` are the checkpoint's. Models of other projects, whose training we do not know, get goals for
    half of their latents.
    """
    if states is None:
        return lambda count, g: model.project(torch.randn(count, model.z_dim, generator=g))
    if facts["model"] not in MODELS:
        return lambda count, g: _half_goals(model, states, count, g)
    entry = MODELS[facts["model"]]
    learner = entry.learner(deepcopy(model), entry.config(**facts["settings"]))
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(layout)
        learner.recall(states, torch.Generator().manual_seed(seed))
    return lambda count, g: learner.practice_latents(_some(states, count, g), g)


def _some(states: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return states[torch.randint(len(states), (count,), generator=generator)]


@torch.no_grad()
def _half_goals(model: Network, states: Tensor, count: int, generator: torch.Generator) -> Tensor:
    goals = model.backward(_some(states, count, generator))
    uniform = torch.randn(goals.shape, generator=generator)
    is_goal = torch.rand(count, 1, generator=generator) < 0.5
    return model.project(torch.where(is_goal, goals, uniform))
