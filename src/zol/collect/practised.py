"""Data from the policies of a trained model, for ``zol explore --how practice``.

Latents are drawn as the model's learner draws those that it is trained for, with states of the model's own
sample as goals; those of ``prior_features`` are prompts of rewards of its prior. The model stays as it is.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.collect.rounds import LatentPolicy, acting, partly_random, require_fit, turns
from zol.collect.scripted import collect
from zol.common.config import Config
from zol.data import Dataset
from zol.fields import Layout, States
from zol.models import MODELS
from zol.models.learner import mixed_latents
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


def practise(
    world: World,
    model: Network,
    facts: Mapping[str, Any],
    states: Tensor | None,
    out: str | Path,
    config: PractisedConfig,
    *,
    steps: int = 1_000_000,
    envs: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
) -> Dataset:
    """Collect ``steps`` transitions of a checkpoint's model into the set at ``out``, or go on with it.

    ``facts`` are the checkpoint's, ``states`` ``[N, D]`` the goals of its latents, if it has any.
    """
    latents = latents_of(model, facts, states, world.layout, seed)
    made_by = {"model": facts["model"], "weights": facts["weights"], "config": config.model_dump(mode="json")}
    return collect(
        world,
        Practised(world, model, latents, config),
        out,
        how="practice",
        source="practice",
        steps=steps,
        envs=envs,
        seed=seed,
        facts=made_by,
        progress=progress,
    )


class Practised:
    """The script (zol.collect.scripted) of a model's own policies."""

    def __init__(self, world: World, model: Network, latents: Latents, config: PractisedConfig) -> None:
        require_fit(world, model)
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

    ``facts`` are the checkpoint's. Models whose training we do not know, such as those of other projects, get
    goals for half of their latents.
    """
    if states is None:
        return lambda count, g: model.project(torch.randn(count, model.z_dim, generator=g))
    if facts["model"] not in MODELS or not facts["settings"]:
        return lambda count, g: mixed_latents(model.backward(_some(states, count, g)), 0.5, g)
    entry = MODELS[facts["model"]]
    learner = entry.learner(deepcopy(model), entry.config(**facts["settings"]))
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(layout)
        learner.recall(states, torch.Generator().manual_seed(seed))
    return lambda count, g: learner.practice_latents(_some(states, count, g), g)


def _some(states: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return states[torch.randint(len(states), (count,), generator=generator)]
