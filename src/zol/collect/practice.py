"""Practice: the batches of a model that learns from what its own policies do for rewards of a prior.

Rounds are those of zol.collect.practising; their latents are those of the learner's pool of rewards, and the
number of the reward that acted is stored beside every step. The first rounds act at random.

Half of the rows of a batch keep the reward that acted (``own_share``), so that a latent sees what its own
policy leads to; the others get any reward of the pool. Whenever the set has doubled, the space of rewards
is built anew on it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from zol.collect.practising import Practising, RoundConfig
from zol.data import Batch, BatchSpec, Dataset
from zol.data.prompting import SAMPLES, prompt_sample
from zol.data.resident import Streamed
from zol.data.sampling import along_path
from zol.models.prior_features import PriorFeaturesLearner
from zol.models.reward_space import balanced, value_range
from zol.worlds.base import World

SEEN = 65_536  # states of the set that the space of rewards is built on
VISITED = 16_384  # states of the set of which episodes begin in some
NOBODY = -1  # the reward of a step at random


class PracticeConfig(RoundConfig):
    """How a model practises."""

    random_steps: int = Field(default=32_000, ge=1)
    """environment steps with uniform actions before the first update"""
    own_share: float = Field(default=0.5, ge=0, le=1)
    """share of the rows of a batch that keep the reward that acted"""
    place_every: int = Field(default=1_000, ge=1)
    """updates after which the pool grows and its latents are computed anew"""


class Practice(Practising):
    """Draws batches, and practises when it is time to."""

    learner: PriorFeaturesLearner
    config: PracticeConfig

    def __init__(
        self,
        learner: PriorFeaturesLearner,
        world: World,
        config: PracticeConfig,
        *,
        folder: Path | None,
        seed: int,
    ) -> None:
        """The set is in ``folder``, or nowhere."""
        learner.use_layout(world.layout)
        quantities = list(learner.config.quantities)
        super().__init__(learner, world, config, folder=folder, seed=seed, quantities=quantities)
        self.built = 0  # episodes when the space of rewards was built
        try:
            self.begun = self._act_at_random()
        except BaseException:
            self.close()
            raise

    def _act_at_random(self) -> Dataset:
        """The set as it is before the first update."""
        generator, steps = torch.Generator().manual_seed(self.seed + 1), 0
        while steps < self.config.random_steps:
            steps += self._round(generator, at_random=True)
        return self.recording.dataset()

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """A batch of ``n`` stretches with the latents of their rewards."""
        del generator  # simulators want a CPU's generator
        c, learner = self.config, self.learner
        if self.updates % c.updates == 0:
            if self.updates:
                self._round(self.chance, at_random=False)
            self._build()
        elif self.updates % c.place_every == 0:
            learner.grow(self.chance)
        self.updates += 1
        data = self.recording.dataset()
        steps = torch.randint(len(data), (n,), generator=self.chance)
        batch = along_path(Streamed(data, torch.device("cpu")), steps, spec.path)
        rewards = self._rewards(data, steps)
        device = next(learner.model.parameters()).device
        return replace(batch, z=learner.space.latents[rewards].clone()).to(device)

    def _rewards(self, data: Dataset, steps: Tensor) -> Tensor:
        """Numbers of rewards for these steps, ``[N]``: those that acted, or any."""
        assert data.mapped is not None
        acted = data.mapped.gather("reward_number", data.rows(steps.numpy()), 1)[:, 0]
        own = torch.from_numpy(acted.astype(np.int64).reshape(-1))
        keep = torch.rand(len(steps), generator=self.chance) < self.config.own_share
        drawn = torch.randint(int(self.learner.space.count), (len(steps),), generator=self.chance)
        return torch.where(keep & (own != NOBODY), own, drawn)

    def _build(self) -> None:
        """Build the space of rewards on what there is, if that has doubled; let the pool grow."""
        data = self.recording.dataset()
        if data.episodes >= 2 * self.built:
            seen = data.sample(min(len(data), SEEN), self.chance, physics=False)
            self.learner.prepare(seen.next_obs, self.chance)
            self.built = data.episodes
        else:
            self.learner.grow(self.chance)

    def _round(self, generator: torch.Generator, *, at_random: bool) -> int:
        """One episode in every environment; how many steps that was."""
        c, space = self.config, self.learner.space
        if at_random:
            rewards = torch.full((c.envs, c.turns), NOBODY)
        else:
            rewards = torch.randint(int(space.count), (c.envs, c.turns), generator=generator)
        numbers = rewards.repeat_interleave(c.latent_steps, dim=1).numpy().astype(np.int32)
        latents = None if at_random else space.latents[rewards]
        return self.play(latents, generator, reward_number=numbers[..., None])

    def visited(self, count: int, generator: torch.Generator) -> Tensor:
        """States of the set, drawn evenly from clusters of their quantities."""
        data = self.recording.dataset()
        # the states before these steps: those after them may be terminal
        found = data.take(self._evenly(data, count, VISITED, generator).numpy()).physics
        assert found is not None
        return found

    def _evenly(self, data: Dataset, count: int, among: int, generator: torch.Generator) -> Tensor:
        """Steps ``[count]`` drawn evenly from clusters of the quantities of ``among`` random ones."""
        steps = torch.randint(len(data), (among,), generator=generator)
        obs = data.take(steps.numpy(), physics=False).next_obs
        assert self.learner.quantities is not None
        values = self.learner.quantities(obs.double()).float()
        low, high = value_range(values)
        return steps[balanced(values, low, high, count, generator)]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about the data."""
        return self.recording.facts

    def prompt_sample(self, seed: int) -> dict[str, Tensor]:
        """Steps drawn evenly from clusters of their quantities, as the sample of the space of rewards is."""
        data, generator = self.recording.dataset(), torch.Generator().manual_seed(self.seed)
        steps = self._evenly(data, min(SAMPLES, len(data)), SEEN, generator)
        return prompt_sample(data, seed, steps=steps)

    def counts(self) -> dict[str, int]:
        """Numbers that a resume needs."""
        return super().counts() | {"built": self.built}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        super().load_state_dict(state)
        self.built = int(state["built"])
