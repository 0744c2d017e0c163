"""What an explorer remembers: the finished rounds, which are on disk, and the current one, in memory."""

from pathlib import Path

import torch
from torch import Tensor

from zol.collect.rounds import Round
from zol.data import Batch
from zol.data.batch import joined
from zol.data.dataset import Dataset
from zol.data.sampling import along_path
from zol.fields import States
from zol.worlds.base import World
from zol.worlds.episode import Step


class RoundMemory(Round):
    """The current round, and the steps of all rounds to draw uniformly from.

    Steps have numbers, as :class:`zol.data.resident.Source` wants them: those of the past as in the set, then
    past + environment · L + t for those of this round.
    """

    def __init__(self, path: Path, past_steps: int, world: World, first: States) -> None:
        """``path`` is the set, of which the first ``past_steps`` count: a killed explorer may leave more."""
        super().__init__(world, first, world.episode_length)
        self.past = Dataset.open(path) if past_steps else None
        self.past_steps = past_steps
        # Places t · n + environment of the steps of this round, without those of episodes that were over.
        self._places = torch.zeros(self.n * self.length, dtype=torch.int64)

    def add(self, t: int, step: Step) -> None:
        """Keep a step, and where it is."""
        places = step.those(torch.arange(t * self.n, (t + 1) * self.n))
        self._places[self.steps : self.steps + len(places)] = places
        super().add(t, step)

    def sample(self, size: int, generator: torch.Generator, path: int = 1) -> Batch:
        """Transitions drawn uniformly from all rounds; with ``path`` above 1, up to so many steps of each."""
        drawn = torch.randint(self.past_steps + self.steps, (size,), generator=generator)
        places = self._places[drawn[drawn >= self.past_steps] - self.past_steps]
        now = self.past_steps + places % self.n * self.length + places // self.n
        steps = torch.cat([drawn[drawn < self.past_steps], now])
        return self.take(steps) if path == 1 else along_path(self, steps, path)

    def take(self, steps: Tensor) -> Batch:
        """The transitions with these numbers, those of the past first, as ``sample`` has them."""
        env, t = self._now(steps)
        ended = self.terminated[env] & (t + 1 == self.lengths[env])
        fresh = Batch(self.obs[env, t], self.action[env, t], self.obs[env, t + 1], ended)
        if self.past is None:
            return fresh
        return joined([self.past.take(steps[steps < self.past_steps].numpy(), physics=False), fresh])

    def left(self, steps: Tensor) -> Tensor:
        """Transitions to the end of the episode, or to where it has got so far."""
        env, t = self._now(steps)
        fresh = self.lengths[env] - t
        if self.past is None:
            return fresh
        return torch.cat([torch.from_numpy(self.past.left(steps[steps < self.past_steps].numpy())), fresh])

    def _now(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Environments and times of those steps that are of this round."""
        numbers = steps[steps >= self.past_steps] - self.past_steps
        return numbers // self.length, numbers % self.length
