"""Transitions to learn a residual critic from: those met in the environment, and those of the data."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from zol.adapt.critic import FrozenCritic
from zol.adapt.environments import TaskEnvironments
from zol.data import Dataset


@dataclass(frozen=True)
class Steps:
    """Transitions of T tasks, N each."""

    obs: Tensor  # [T, N, D]
    action: Tensor  # [T, N, A]
    next_obs: Tensor  # [T, N, D]
    unseen: Tensor  # r − r̂(s'), the reward that the frozen features miss, [T, N]
    terminated: Tensor  # the world ended here, [T, N]; running out of time is not an end

    def beside(self, other: "Steps") -> "Steps":
        """Both as one batch."""
        return Steps(*(torch.cat([getattr(self, f.name), getattr(other, f.name)], 1) for f in fields(self)))


class Replay:
    """The latest steps of every task, in memory that is taken once."""

    def __init__(self, capacity: int) -> None:
        """Room for ``capacity`` transitions per task."""
        self.capacity = capacity
        self._held: Steps | None = None
        self._next = self._filled = 0

    def __len__(self) -> int:
        return self._filled

    def add(self, steps: Steps) -> None:
        """Keep these steps; the oldest make room."""
        if self._held is None:
            self._held = Steps(*(self._room(getattr(steps, f.name)) for f in fields(steps)))
        n = steps.unseen.shape[1]
        at = torch.arange(self._next, self._next + n) % self.capacity
        for f in fields(steps):
            getattr(self._held, f.name)[:, at] = getattr(steps, f.name)
        self._next = (self._next + n) % self.capacity
        self._filled = min(self._filled + n, self.capacity)

    def sample(self, n: int, generator: torch.Generator) -> Steps:
        """``n`` steps per task, drawn uniformly; all tasks take the same places of the buffer."""
        assert self._held is not None, "nothing has been added yet"
        at = torch.randint(self._filled, (n,), generator=generator)
        return Steps(*(getattr(self._held, f.name)[:, at] for f in fields(self._held)))

    def _room(self, like: Tensor) -> Tensor:
        return like.new_zeros(like.shape[0], self.capacity, *like.shape[2:])


def offline_steps(
    data: Dataset,
    environments: TaskEnvironments,
    base: FrozenCritic,
    like: Tensor,
    n: int,
    generator: torch.Generator,
) -> Steps:
    """``n`` transitions of the data per task, labelled with the tasks' own rewards."""
    tasks = len(environments.tasks)
    batch = data.sample(n * tasks, generator)

    def shaped(values: Tensor) -> Tensor:
        return values.to(like.dtype).reshape(tasks, n, -1)

    rewards = environments.rewards([batch.arrived(environments.world.layout)])[0]
    next_obs = shaped(batch.next_obs)
    unseen = rewards.to(like.dtype) - base.predicted_reward(next_obs)
    return Steps(
        shaped(batch.obs), shaped(batch.action), next_obs, unseen, batch.terminated.reshape(tasks, n)
    )
