"""What every adaptation method is given and gives back, so that a table of methods is a loop.

A method is a function ``(model, evidence, start, …) → Adapted``. It sees a labelled sample of the data and
start states, never a test return; all networks stay frozen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from zol import prompt
from zol.data import Dataset
from zol.errors import DataError
from zol.models.base import Latent, Model, model_hash
from zol.tasks import Layout, States, Task


@dataclass(frozen=True)
class Evidence:
    """All that a method may look at: sampled next states, their rewards for T tasks, and start states."""

    tasks: tuple[str, ...]
    obs: Tensor  # [N, D] next states sampled from the data
    rewards: Tensor  # [T, N]
    starts: Tensor  # [S, D]
    data: str = ""  # fingerprint of the dataset the sample came from

    def __post_init__(self) -> None:
        if self.rewards.shape != (len(self.tasks), len(self.obs)):
            raise DataError(
                f"rewards have shape {tuple(self.rewards.shape)}; {len(self.tasks)} tasks and "
                f"{len(self.obs)} states need ({len(self.tasks)}, {len(self.obs)})"
            )
        if self.starts.ndim != 2 or len(self.starts) == 0:
            raise DataError("start states are missing: a density ratio begins at the start distribution")

    @staticmethod
    def gather(
        dataset: Dataset,
        tasks: Sequence[Task] | Mapping[str, Task],
        layout: Layout | None = None,
        *,
        samples: int = 10_000,
        starts: int = 256,
        generator: torch.Generator,
    ) -> "Evidence":
        """Label a random sample of a dataset with every task, and draw start states.

        ``layout`` names the observation columns for the rewards; without it they are one field, ``s["obs"]``.
        """
        batch = dataset.sample(samples, generator)
        arrived = batch.arrived(layout or Layout.plain(dataset.obs_dim))
        return Evidence.label(arrived, tasks, dataset.starts(starts, generator), dataset.fingerprint())

    @staticmethod
    def label(
        states: States, tasks: Sequence[Task] | Mapping[str, Task], starts: Tensor, data: str = ""
    ) -> "Evidence":
        """Label states that are already at hand, such as the sample that travels with a checkpoint."""
        wanted = list(tasks.values()) if isinstance(tasks, Mapping) else list(tasks)
        rewards = torch.stack([task(states).float() for task in wanted])
        for name, bad in zip((t.name for t in wanted), (~rewards.isfinite()).sum(-1).tolist(), strict=True):
            if bad:
                raise DataError(f"task '{name}' gives NaN or infinity for {bad} of {len(states.obs)} states")
        return Evidence(tuple(task.name for task in wanted), states.obs, rewards, starts, data)

    def audible(self) -> tuple["Evidence", list[str]]:
        """Without tasks whose reward is zero on the whole sample, which no prompt can serve; those names."""
        heard = (self.rewards.abs().amax(-1) > 0).tolist()
        tasks = [name for name, kept in zip(self.tasks, heard, strict=True) if kept]
        return self.only(*tasks), [name for name in self.tasks if name not in tasks]

    def only(self, *tasks: str) -> "Evidence":
        """The same sample with the rewards of some tasks."""
        rows = [self.tasks.index(name) for name in tasks]
        return replace(self, tasks=tasks, rewards=self.rewards[rows])

    def prompt(
        self, model: Model, how: prompt.RewardPrompt = "correlation", *, centre: bool = False
    ) -> Tensor:
        """Closed-form latents of all tasks, ``[T, d]``."""
        return prompt.reward(model, self.obs, self.rewards, how, centre=centre)


@dataclass(frozen=True)
class Adapted:
    """Latents ``[C, T, d]`` that a method found for C configurations and T tasks, and how it got there."""

    z: Tensor
    start: Tensor  # Π(z0), [T, d]
    method: str
    configs: tuple[Mapping[str, object], ...]
    evidence: Evidence
    model_identity: str
    estimate: Tensor  # [C, T] offline estimate of the mean reward per step
    diagnostics: Mapping[str, Tensor] = field(default_factory=dict)  # each [C, T]
    trace: Mapping[str, Tensor] = field(default_factory=dict)  # each [steps, C, T]; NaN after a row stopped

    @cached_property
    def distance(self) -> Tensor:
        """‖z − Π(z0)‖ / ‖Π(z0)‖, ``[C, T]``."""
        return (self.z - self.start).norm(dim=-1) / self.start.norm(dim=-1)

    def latent(self, task: str, config: int = 0) -> Latent:
        """The latent of one task, with its provenance."""
        if task not in self.evidence.tasks:
            raise DataError(f"no task '{task}' in this result; it has {', '.join(self.evidence.tasks)}")
        t = self.evidence.tasks.index(task)
        return Latent(
            z=self.z[config, t].clone(),
            model=self.model_identity,
            task=task,
            method=self.method,
            data=self.evidence.data,
            config=dict(self.configs[config]),
            estimate=float(self.estimate[config, t]),
            diagnostics={name: float(value[config, t]) for name, value in self.diagnostics.items()},
        )

    def latents(self, config: int = 0) -> list[Latent]:
        """The latents of all tasks of one configuration."""
        return [self.latent(task, config) for task in self.evidence.tasks]


def identity(model: Model) -> str:
    """Hash of the model's weights; '' for a model that has none to hash."""
    return model_hash(model) if isinstance(model, torch.nn.Module) else ""
