"""Data from the policies of a trained model, for ``zol explore --how practice``.

Latents are drawn as the model's learner draws those that it is trained for, with states of the model's own
sample as goals; those of ``prior_features`` are prompts of rewards of its prior. The model stays as it is.
"""

from collections.abc import Mapping
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
from zol.fields import States
from zol.models.network import Network
from zol.models.trained_latents import Latents, trained_latents
from zol.worlds.base import World
from zol.worlds.episode import Policy


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
    latents = trained_latents(model, facts, states, world.layout, seed)
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
