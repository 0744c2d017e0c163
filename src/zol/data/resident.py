"""Where batches come from while training: from columns on the device, or from rows read when drawn.

Step numbers are drawn on the device by the run's own generator, the same ones whatever the source, so that a
run does not depend on where its data lie.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from zol.data.batch import Batch
from zol.data.dataset import Dataset

# Of the memory that is free on a GPU, data may take this share: networks, gradients and batches come later.
SHARE = 0.5


class Source(Protocol):
    """Transitions by step number, ready on the training device."""

    def take(self, steps: Tensor) -> Batch:
        """The transitions with these numbers."""

    def left(self, steps: Tensor) -> Tensor:
        """How many transitions there are from each of these to the end of its episode, itself included."""


class Streamed:
    """Reads the rows of every batch from memory or disk, then moves them to the device."""

    def __init__(self, dataset: Dataset, device: torch.device, physics: bool = False) -> None:
        self.dataset, self.device, self.physics = dataset, device, physics

    def take(self, steps: Tensor) -> Batch:
        """The transitions with these numbers, with simulator states if they are wanted."""
        return self.dataset.take(steps.cpu().numpy(), physics=self.physics).to(self.device)

    def left(self, steps: Tensor) -> Tensor:
        """Transitions to the end of the episode."""
        return torch.from_numpy(self.dataset.left(steps.cpu().numpy())).to(self.device)


class Resident:
    """Observations, actions and terminations moved to the device once."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        def moved(name: str, dtype: torch.dtype) -> Tensor:
            return torch.from_numpy(np.array(dataset.columns[name])).to(device, dtype)

        self.obs, self.action = moved("obs", torch.float32), moved("action", torch.float32)
        self.terminated = moved("terminated", torch.bool)
        self.ends = torch.from_numpy(np.cumsum(dataset.lengths)).to(device)

    def take(self, steps: Tensor) -> Batch:
        """The transitions with these numbers, without simulator states."""
        rows = steps + torch.searchsorted(self.ends, steps, right=True)  # one more for every episode before
        return Batch(self.obs[rows], self.action[rows], self.obs[rows + 1], self.terminated[rows])

    def left(self, steps: Tensor) -> Tensor:
        """Transitions to the end of the episode."""
        return self.ends[torch.searchsorted(self.ends, steps, right=True)] - steps


def bytes_needed(dataset: Dataset) -> int:
    """What :class:`Resident` would hold."""
    return (dataset.obs_dim * 4 + dataset.action_dim * 4 + 1) * (len(dataset) + dataset.episodes)


def choose_source(dataset: Dataset, device: torch.device, *, physics: bool = False) -> Source:
    """Keep the data on a GPU if they fit beside the networks; read them row by row otherwise.

    On a CPU they stay where they are, in memory or mapped from disk. Simulator states (``physics``) are never
    moved as a whole: few learners need them.
    """
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[0]
    else:
        room = torch.mps.recommended_max_memory() if device.type == "mps" else 0
    if not physics and bytes_needed(dataset) <= SHARE * room:
        return Resident(dataset, device)
    return Streamed(dataset, device, physics)
