"""Acting in the world while adapting: T tasks × k environments as one batch, and every step counted.

Methods that use the environment begin in start states of the world's own distribution, drawn from a stream
of their own: even a caller who seeds adaptation and test alike does not adapt on the test's start states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from zol.adapt.result import Adapted
from zol.adapt.zol import score
from zol.common.config import Config, ConfigError
from zol.evidence import Evidence
from zol.fields import States
from zol.models.base import Model
from zol.tasks import Task
from zol.tasks.grouped import grouped_rewards, stacked
from zol.worlds.base import World


class TaskEnvironments:
    """The environments of a world, grouped by task: ``[T, k]``."""

    def __init__(
        self,
        world: World,
        tasks: Sequence[Task] | Mapping[str, Task],
        evidence: Evidence,
        generator: torch.Generator,
    ) -> None:
        self.world = world
        self.tasks = list(tasks.values()) if isinstance(tasks, Mapping) else list(tasks)
        names = tuple(task.name for task in self.tasks)
        if names != evidence.tasks:
            raise ConfigError(
                f"the environments are for the tasks {', '.join(names) or '(none)'}, the evidence is "
                f"labelled for {', '.join(evidence.tasks)}: pass the same tasks in the same order"
            )
        seed = int(torch.randint(2**62, (), generator=generator))
        self._generator = torch.Generator().manual_seed(seed)
        self.steps = 0
        """Environment steps taken so far, per task."""

    def draw(self, count: int) -> Tensor:
        """``count`` fresh start states of the simulator, ``[count, P]``."""
        self.world.reset(count, self._generator)
        return self.world.physics

    def begin(self, physics: Tensor) -> States:
        """Put the environments into simulator states ``[T, k, P]``."""
        return self.world.set_physics(physics.flatten(0, 1))

    def step(self, action: Tensor) -> States:
        """Apply actions ``[T, k, A]``; the states that follow, ``[T·k, …]``."""
        self.steps += action.shape[1]
        return self.world.step(action.detach().flatten(0, 1))

    def observed(self, states: States, like: Tensor) -> Tensor:
        """Observations ``[T, k, D]`` in the precision of the latents."""
        return states.obs.to(like.dtype).reshape(len(self.tasks), -1, states.obs.shape[-1])

    def rewards(self, reached: Sequence[States]) -> Tensor:
        """Rewards ``[n, T, k]`` of n successive batches of states, each by its own task."""
        return grouped_rewards(self.tasks, stacked(reached))


def online_result(
    method: str,
    model: Model,
    evidence: Evidence,
    start: Tensor,
    z: Tensor,
    config: Config,
    steps: int,
    trace: Mapping[str, Tensor],
) -> Adapted:
    """The result of one configuration: latents ``[T, d]``, the ratio's estimate of them, what they cost.

    ``steps`` are environment steps per task; each ``trace`` is ``[·, T]``.
    """
    result, z0 = score(model, evidence, z), model.project(start)
    extra = {
        "environment_steps": torch.full(result.estimate.shape, float(steps), dtype=torch.float64),
        "distance": ((z - z0).norm(dim=-1) / z0.norm(dim=-1)).unsqueeze(0),
    }
    return replace(
        result,
        method=method,
        start=z0,
        configs=(config.model_dump(),),
        diagnostics=dict(result.diagnostics) | extra,
        trace={name: values.unsqueeze(1) for name, values in trace.items()},
    )
