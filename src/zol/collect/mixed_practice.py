"""Practice beside a fixed set: what policies of a model that learns from data do joins the data.

Every so many updates the model's policies act (zol.collect.practising has the rounds) for latents drawn as
the learner draws those that it is trained for: uniform on the sphere, or embeddings of states of the data.
What they visit is a set of its own, from which a share of the rows of every batch is drawn; until the first
round all of them are from the given set.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from zol.collect.practising import Practising, RoundConfig
from zol.data import Batch, BatchSpec, Dataset
from zol.data.batch import joined
from zol.data.prompting import mixed_sample, prompt_sample
from zol.data.sampling import Sampler
from zol.models.learner import NetworkLearner
from zol.worlds.base import World


class MixedPracticeConfig(RoundConfig):
    """How a model practises beside the data that it is given."""

    latent_steps: int = Field(default=125, ge=1)
    """steps before another latent takes over"""
    own_data_share: float = Field(default=0.5, ge=0, le=1)
    """share of a batch's rows, and of the prompt's states, that are from what the model itself visited"""


class MixedPractice(Practising):
    """Draws batches from both sets, and practises when it is time to."""

    config: MixedPracticeConfig

    def __init__(
        self,
        learner: NetworkLearner,
        world: World,
        given: Dataset,
        config: MixedPracticeConfig,
        *,
        folder: Path | None,
        seed: int,
    ) -> None:
        """What is visited goes to ``folder``, or nowhere."""
        facts = {"model": learner.facts["model"], "beside": given.fingerprint()}
        super().__init__(learner, world, config, folder=folder, seed=seed, **facts)
        self.given = given
        self._device = next(learner.model.parameters()).device
        self._from_given = Sampler(given, self._device, learner.batches)
        self._from_own: Sampler | None = None

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """A batch of ``n`` rows, those of the given set first."""
        if self.updates and self.updates % self.config.updates == 0:
            self._practise()
        self.updates += 1
        own = round(self.config.own_data_share * n) if self.recording.done else 0
        parts = []
        if own < n:
            parts.append(self._from_given.draw(spec, n - own, generator))
        if own:
            parts.append(self._own().draw(spec, own, generator))
        return joined(parts)

    def _own(self) -> Sampler:
        """Draws from the own set as it is now."""
        if self._from_own is None:
            self._from_own = Sampler(self.recording.dataset(), self._device, self.learner.batches)
        return self._from_own

    def _practise(self) -> None:
        """One round with fresh latents."""
        c, g = self.config, self.chance
        latents = self.learner.practice_latents(self._states(c.envs * c.turns).to(self._device), g)
        self.play(latents.cpu().view(c.envs, c.turns, -1), g)
        self._from_own = None

    def _states(self, count: int) -> Tensor:
        """States ``[count, D]`` of both sets, with their shares of a batch."""
        own = round(self.config.own_data_share * count) if self.recording.done else 0
        parts = [self.given.sample(count - own, self.chance, physics=False).next_obs]
        if own:
            parts.append(self.recording.dataset().sample(own, self.chance, physics=False).next_obs)
        return torch.cat(parts)

    def visited(self, count: int, generator: torch.Generator) -> Tensor:
        """Any states of the own set."""
        found = self.recording.dataset().sample(count, generator).physics  # s, not s', which may be terminal
        assert found is not None
        return found

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about what was visited, beside the given set."""
        if not self.recording.done:
            return {}
        own = self.recording.facts
        return {"own_data": f"{own['transitions']:,} transitions of its own policies, {own['data']}"}

    def prompt_sample(self, seed: int) -> dict[str, Tensor]:
        """States of both sets, as batches have them: B is learned with respect to their mixture."""
        if not self.recording.done:
            return prompt_sample(self.given, seed)
        return mixed_sample(self.given, self.recording.dataset(), self.config.own_data_share, seed)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        super().load_state_dict(state)
        self._from_own = None
