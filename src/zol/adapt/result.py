"""What every adaptation method gives back: latents, with where they came from and how they were judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor

from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.models.base import Latent

IN_UNITS_OF_REWARD = frozenset(
    {
        "estimate",
        "objective",
        "gain",
        "imagined",
        "imagined_gain",
        "imagined_error",
        "critic_gain",
        "lstd_gain",
        "doubt",
        "excess",
        "lookahead",
        "reward",
        "value",
    }
)
"""Diagnostics and traces that are twice as large where rewards are; all others know no unit."""


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        configurations, _, size = self.z.shape
        several = "" if configurations == 1 else f"{configurations} configurations of "
        tasks = ", ".join(self.evidence.tasks)
        # Not the estimates: how good their estimator is depends on the world, which a Skill knows.
        return (
            f"Adapted({several}{self.method}: latents of {size} numbers for {tasks})\n"
            "  .latent(TASK) is one of them with its origin, .z has all, [C, T, d]"
        )

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
