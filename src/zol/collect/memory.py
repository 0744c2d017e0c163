"""What an explorer remembers: the finished rounds, which are on disk, and the current one, in memory.

A round is one episode in each of n environments. An episode that ends in a terminal state is shorter than
the round; its environment adds nothing from then on.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.data.dataset import Dataset
from zol.data.writer import episode_rows
from zol.worlds.base import World
from zol.worlds.episode import Step


class RoundMemory:
    """The steps of all rounds, to draw uniformly from, and the episodes of the current one, to write."""

    def __init__(self, path: Path, past_steps: int, n: int, world: World) -> None:
        """``path`` is the set, of which the first ``past_steps`` count: a killed explorer may leave more."""
        self.past = Dataset.open(path) if past_steps else None
        self.past_steps = past_steps
        self.n, length = n, world.episode_length
        self.obs = torch.zeros(n, length + 1, world.layout.obs_dim)
        self.action = torch.zeros(n, length, world.action_dim)
        self.physics: NDArray[np.float64] = np.zeros((n, length + 1, 0))
        self.lengths = torch.zeros(n, dtype=torch.int64)
        self.terminated = torch.zeros(n, dtype=torch.bool)  # how the episodes ended that are over
        self.steps = 0  # of this round, over all environments
        # Places t · n + environment of the steps of this round, without those of episodes that were over.
        self._places = torch.zeros(n * length, dtype=torch.int64)

    def begin(self, obs: Tensor, physics: Tensor) -> None:
        """Keep the start states of the round."""
        self.obs[:, 0] = obs
        self.physics = np.zeros((*self.obs.shape[:2], physics.shape[1]))
        self.physics[:, 0] = physics.numpy()

    def add(self, t: int, step: Step, physics: Tensor) -> None:
        """Keep the actions of step ``t`` and what followed in the environments that were running."""
        self.action[:, t], self.obs[:, t + 1] = step.states.need_action(), step.states.obs
        self.physics[:, t + 1] = physics.numpy()
        places = step.those(torch.arange(t * self.n, (t + 1) * self.n))
        self._places[self.steps : self.steps + len(places)] = places
        self.steps += len(places)
        self.lengths += 1 if step.running is None else step.running
        if step.states.terminated is not None:
            self.terminated |= step.states.terminated

    def sample(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Observations, actions, next observations and terminations of steps drawn from all rounds."""
        steps = torch.randint(self.past_steps + self.steps, (size,), generator=generator)
        places = self._places[steps[steps >= self.past_steps] - self.past_steps]
        env, t = places % self.n, places // self.n
        ended = self.terminated[env] & (t + 1 == self.lengths[env])
        fresh = self.obs[env, t], self.action[env, t], self.obs[env, t + 1], ended
        if self.past is None:
            return fresh
        old = self.past.take(steps[steps < self.past_steps].numpy(), physics=False)
        obs, action, next_obs, terminated = (
            torch.cat(pair)
            for pair in zip((old.obs, old.action, old.next_obs, old.terminated), fresh, strict=True)
        )
        return obs, action, next_obs, terminated

    def episodes(self) -> list[dict[str, NDArray[np.generic]]]:
        """The finished round as rows to write, each episode as long as it was."""
        return [
            episode_rows(
                self.obs[i, : length + 1].numpy(),
                self.action[i, :length].numpy(),
                terminated=bool(self.terminated[i]),
                physics=self.physics[i, : length + 1],
            )
            for i, length in enumerate(self.lengths.tolist())
        ]
