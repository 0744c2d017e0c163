"""What models share that practise while they learn: rounds in a world, and a set that grows by them.

A round is one episode in each of n environments, in which latents of the learner act, with noise; every
``latent_steps`` steps another one takes over. Its episodes are committed to a set on disk, and updates
follow, one per ``steps_per_update`` steps. Between two rounds nothing is open but the set, so a run that was
interrupted takes the very steps of one that was not.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from zol.collect.recording import Recording
from zol.collect.rounds import LatentPolicy, Round, require_fit, turns
from zol.common.config import Config
from zol.common.errors import CheckpointError
from zol.common.threads import one_torch_thread
from zol.data import Dataset
from zol.fields import States
from zol.models.learner import NetworkLearner
from zol.models.optimisation import restore_generator
from zol.worlds.base import World
from zol.worlds.episode import random_policy


class RoundConfig(Config):
    """How a model acts in rounds."""

    envs: int = Field(default=32, ge=1)
    """n: environments stepped together; a round is one episode of each"""
    episode_length: int = Field(default=500, ge=1)
    """steps of an episode"""
    latent_steps: int = Field(default=250, ge=1)
    """steps before another latent takes over"""
    steps_per_update: int = Field(default=16, ge=1)
    """environment steps, over all environments, per update"""
    noise: tuple[float, float] = Field(default=(0.1, 0.4), strict=False)
    """standard deviations of the noise on actions in the first and in the last environment"""
    restarts: float = Field(default=0.0, ge=0, le=1)
    """share of the episodes that begin in states that were visited"""

    @property
    def updates(self) -> int:
        """Updates between two rounds."""
        return max(1, self.envs * self.episode_length // self.steps_per_update)

    @property
    def turns(self) -> int:
        """Latents that act in an episode."""
        return turns(self.episode_length, self.latent_steps)


class Practising(ABC):
    """A model in its world: rounds, their set, and a state that resumes exactly."""

    def __init__(
        self,
        learner: NetworkLearner,
        world: World,
        config: RoundConfig,
        *,
        folder: Path | None,
        seed: int,
        **facts: Any,
    ) -> None:
        """The set is in ``folder``, or nowhere; ``facts`` are for its provenance."""
        require_fit(world, learner.model)
        self.learner, self.world, self.config, self.seed = learner, world, config, seed
        self.recording = Recording(world, folder, config, how="practice", seed=seed, **facts)
        self.chance = torch.Generator().manual_seed(seed)
        self.updates = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a run beside model and loop: it is continued with the same values only."""
        return {f"practice.{name}": value for name, value in self.config.model_dump(mode="json").items()}

    @abstractmethod
    def visited(self, count: int, generator: torch.Generator) -> Tensor:
        """Simulator states ``[count, P]`` of the set, to begin episodes in."""

    def play(self, latents: Tensor | None, generator: torch.Generator, **columns: NDArray[np.generic]) -> int:
        """One episode in every environment, committed to the set; how many steps that was.

        ``latents`` are ``[n, turns, d]``, None acts at random; ``columns`` of steps ``[n, L, …]`` are stored.
        """
        c = self.config
        if latents is None:
            policy = random_policy(self.world, generator)
        else:
            policy = LatentPolicy(self.learner.model, latents, c.latent_steps, c.noise, generator)
        with one_torch_thread(self.world.threads is not None):
            again = 0 if latents is None or not self.recording.done else round(c.restarts * c.envs)
            played = Round(self.world, self._first(again, generator), c.episode_length)
            for _ in played.play(policy):
                pass
        self.recording.commit(played.episodes(**columns))
        return played.steps

    def _first(self, again: int, generator: torch.Generator) -> States:
        """The first states of a round, ``again`` of them states that were visited before.

        A body that has just learned to stand rarely stands long enough to learn how to walk; begun on its
        feet, it does. The others begin where episodes of the world do.
        """
        first = self.world.reset(self.config.envs, generator)
        if not again:
            return first
        visited = self.visited(again, generator)
        physics = self.world.physics.clone()
        physics[torch.randperm(len(physics), generator=generator)[:again]] = visited.to(physics)
        return self.world.set_physics(physics)

    def counts(self) -> dict[str, int]:
        """Numbers that a resume needs."""
        return {"updates": self.updates, "episodes": self.recording.done}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything beyond model and learner that an exact resume needs."""
        return {n: torch.tensor(v) for n, v in self.counts().items()} | {"generator": self.chance.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        for name in self.state_dict():
            if name not in state:
                raise CheckpointError(f"the training state has no '{name}' of practice: it is another run's")
        self.recording.rewind(int(state["episodes"]))
        self.updates = int(state["updates"])
        restore_generator(self.chance, state, self.recording.path)

    def collected(self) -> Dataset:
        """Everything that was visited so far."""
        return self.recording.dataset()

    def close(self) -> None:
        """Release the files; a set that was to be nowhere is gone."""
        self.recording.close()
