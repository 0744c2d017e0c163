"""What a learner is given in every step: transitions, and what else it asked for (zol.data.sampling)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import Layout, States


@dataclass(frozen=True)
class Batch:
    """Transitions (s, a, s'); ``N`` rows. With ``length`` they are stretches of several steps.

    Columns are None unless a :class:`~zol.data.sampling.BatchSpec` asked for them.
    """

    obs: Tensor  # [N, D]
    action: Tensor  # [N, A]
    next_obs: Tensor  # [N, D]
    terminated: Tensor  # [N] bool
    next_physics: Tensor | None = None  # simulator states, if stored and wanted, [N, P]
    physics: Tensor | None = None  # [N, P]
    goal: Tensor | None = None  # a state on the way of a stretch, [N, D]
    length: Tensor | None = None  # steps from obs to next_obs, [N]
    first_obs: Tensor | None = None  # the state one step after obs, where next_obs is not it, [N, D]
    first_terminated: Tensor | None = None  # that state is terminal, [N] bool
    future_obs: Tensor | None = None  # s_{t+k} of the same episode, k geometric, [N, D]
    next_action: Tensor | None = None  # what the data did in s', [N, A]; zeros where the episode is over
    last: Tensor | None = None  # the episode is over in s', so that the data have no next action, [N] bool
    path_obs: Tensor | None = None  # the states that up to H consecutive steps from obs on lead to, [N, H, D]
    path_action: Tensor | None = None  # the actions of those steps, [N, H, A]
    path_length: Tensor | None = None  # how many of them the episode has, [N]
    expert_obs: Tensor | None = None  # windows of W consecutive demonstrated states, [M, W, D]
    expert_next_obs: Tensor | None = None  # the states after each of them, [M, W, D]
    z: Tensor | None = None  # the latents whose policies acted, where they are known, [N, d]

    def __len__(self) -> int:
        return len(self.obs)

    def to(self, device: torch.device | str) -> "Batch":
        """The same transitions on another device."""
        columns: dict[str, Any] = {column.name: getattr(self, column.name) for column in fields(self)}
        moved: dict[str, Any] = {name: c if c is None else c.to(device) for name, c in columns.items()}
        return Batch(**moved)

    def single(self) -> "Batch":
        """The single steps that the stretches begin with; a batch of single steps is its own."""
        if self.first_obs is None or self.first_terminated is None:
            return self
        return replace(
            self,
            next_obs=self.first_obs,
            terminated=self.first_terminated,
            next_physics=None,
            goal=None,
            length=None,
            first_obs=None,
            first_terminated=None,
        )

    def departed(self, layout: Layout) -> States:
        """The states the transitions begin in."""
        return States(self.obs, layout, physics=self.physics)

    def arrived(self, layout: Layout) -> States:
        """The states the transitions lead to: what a reward of this data is computed on."""
        return States(self.next_obs, layout, action=self.action, physics=self.next_physics)


def joined(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches, one batch after the other; all of them have the same columns."""
    if len(batches) == 1:
        return batches[0]
    rows: dict[str, Any] = {}
    for column in fields(Batch):
        parts = [part for batch in batches if (part := getattr(batch, column.name)) is not None]
        if len(parts) not in (0, len(batches)):
            raise DataError(f"{len(batches) - len(parts)} of {len(batches)} batches have no '{column.name}'")
        rows[column.name] = torch.cat(parts) if parts else None
    return Batch(**rows)
