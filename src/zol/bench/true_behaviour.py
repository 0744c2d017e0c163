r"""What latents truly do: returns on every task and discounted occupancies, from rollouts in the world.

All latents start from the same states, so that differences between them are paired:

    discounted     (1 − γ) Σ_t γ^t r(s_{t+1}) / (1 − γ^H)     what offline estimates speak of
    undiscounted   1/H Σ_t r(s_{t+1})                         the plain mean of the same steps
    features       E Σ_t γ^t B(s_{t+1}), normalised alike        what an exact F would know
    occupancy      p(cell) ∝ Σ_t γ^t [s_{t+1} ∈ cell]         (zol.bench.occupancy)

H is where less than 1 % of the discounted weight is left, γ^H < 0.01, at most an episode; dividing by
1 − γ^H makes the weights of the steps sum to one, as those of estimates do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.progress import Progress
from torch import Tensor

from zol.bench.occupancy import CELLS, Projection, gathered
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.models.base import Model, policy_at
from zol.tasks import Task
from zol.worlds.base import World
from zol.worlds.episode import episode

LEFT = 0.01  # share of the discounted weight that lies behind the horizon


@dataclass(frozen=True)
class TrueBehaviour:
    """K latents on T tasks, in E episodes that begin in the same states for all of them."""

    discounted: Tensor  # [K, T, E]
    undiscounted: Tensor  # [K, T, E]
    occupancy: Tensor  # of the first and of the second half of the episodes, [2, K, cells]
    features: Tensor  # discounted mean of B(s_{t+1}), [K, d]

    def at(self, rows: Tensor, tasks: int) -> "TrueBehaviour":
        """Of some latents, on the first tasks."""
        return TrueBehaviour(
            self.discounted[rows, :tasks],
            self.undiscounted[rows, :tasks],
            self.occupancy[:, rows],
            self.features[rows],
        )

    @property
    def where(self) -> Tensor:
        """The occupancy of all episodes, ``[K, cells]``."""
        return self.occupancy.mean(0)


@torch.no_grad()
def play(
    world: World,
    model: Model,
    z: Tensor,
    tasks: Sequence[Task],
    projection: Projection | None,
    *,
    episodes: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> TrueBehaviour:
    """Play latents ``[K, d]`` from an even number of start states, and score each by all tasks."""
    K, gamma = len(z), model.discount
    H = min(world.episode_length, math.ceil(math.log(LEFT) / math.log(gamma)))
    act = policy_at(model, z.unsqueeze(1).expand(K, episodes, -1))
    world.reset(episodes, generator)
    first = world.set_physics(world.physics.repeat(K, 1))
    discounted, total = torch.zeros(2, len(tasks), K * episodes, dtype=torch.float64)
    features = torch.zeros(K, model.z_dim, dtype=torch.float64)
    cells, times = [], gamma ** torch.arange(H, dtype=torch.float64)
    times = times / times.sum()
    bar = Ticker(progress, "true rollouts", H)
    with one_torch_thread(world.threads is not None):
        steps = episode(
            world,
            first,
            lambda s: act(s.obs.to(z.dtype).reshape(K, episodes, -1)).flatten(0, 1),
            H,
        )
        for t, step in enumerate(steps):
            r = torch.stack([task(step.states).double() for task in tasks])
            if step.running is not None:
                r = torch.where(step.running, r, 0.0)
            total += r / H
            discounted += times[t] * r
            B = model.backward(step.states.obs.to(z.dtype)).reshape(K, episodes, -1)
            features += times[t] * B.mean(1)
            if projection is not None:
                cells.append(projection.cells(step.states))
            bar.advance()
    bar.finish()
    shape = (len(tasks), K, episodes)
    halves = torch.zeros(2, K, CELLS * CELLS, dtype=torch.float64)
    if cells:
        visited = torch.stack(cells).reshape(len(cells), K, 2, episodes // 2)  # steps, latents, halves
        weight = times[: len(cells)].repeat_interleave(episodes // 2).unsqueeze(0)
        for k in range(K):
            for half in range(2):
                halves[half, k] = gathered(visited[:, k, half].flatten(), weight)[0]
    discounted, total = (x.reshape(shape).transpose(0, 1) for x in (discounted, total))
    return TrueBehaviour(discounted, total, halves, features)
