"""Batched evaluation: every latent, task and episode of a world in one batch, one policy call per step.

All latents start from the same states (paired comparisons), which are drawn once. Rewards are the
tasks' own functions of the states reached.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich.progress import Progress
from torch import Tensor

from zol.adapt.base import identity
from zol.errors import DataError
from zol.models.base import Latent, Model
from zol.tasks import States
from zol.worlds.base import World, find_task


@dataclass(frozen=True)
class Rollouts:
    """What L latents earned in E episodes each, all from the same E start states."""

    returns: Tensor  # Σ_t r_t, [L, E]
    discounted: Tensor  # (1 − γ) Σ_t γ^t r_t, the scale of offline estimates, [L, E]
    visited: Tensor | None  # observations [steps, L, E, D] if asked for


def evaluate(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    *,
    episodes: int,
    generator: torch.Generator,
    steps: int | None = None,
    keep_visited: bool = False,
    progress: Progress | None = None,
) -> Rollouts:
    """Run each latent in ``episodes`` environments and score it by its own task."""
    if not latents:
        raise DataError("there are no latents to roll out")
    own = identity(model)
    z = torch.stack([latent.require(own) for latent in latents])  # [L, d]
    tasks = [find_task(world, latent.task) for latent in latents]

    def policy(states: States) -> Tensor:
        obs = states.obs.to(z.dtype).reshape(len(latents), episodes, -1)
        return model.act(obs, z.unsqueeze(1)).flatten(0, 1)

    def rewards(states: States) -> Tensor:
        table = torch.empty(len(latents), episodes, dtype=torch.float64)
        for task in set(tasks):  # a task shared by many latents is evaluated once, on all their states
            rows = [k for k, own_task in enumerate(tasks) if own_task is task]
            table[rows] = task(_rows(states, rows, len(latents))).double()
        return table

    starts = world.reset(episodes, generator)
    start = world.physics.repeat(len(latents), 1)
    del starts
    length = world.episode_length if steps is None else steps
    return _run(world, policy, rewards, start, length, keep_visited, progress)


@torch.no_grad()
def _run(
    world: World,
    policy: Callable[[States], Tensor],
    rewards: Callable[[States], Tensor],
    start: Tensor,
    steps: int,
    keep_visited: bool,
    progress: Progress | None,
) -> Rollouts:
    states = world.set_physics(start)
    total: Tensor | None = None
    discounted: Tensor | None = None
    visited: list[Tensor] = []
    bar = progress.add_task("rollouts", total=steps) if progress else None
    for t in range(steps):
        states = world.step(policy(states))
        r = rewards(states)
        weighted = (1 - world.discount) * world.discount**t * r
        total = r if total is None else total + r
        discounted = weighted if discounted is None else discounted + weighted
        if keep_visited:
            visited.append(states.obs.reshape(*r.shape, -1).clone())
        if progress and bar is not None:
            progress.advance(bar)
    if total is None or discounted is None:
        raise DataError("an episode has at least one step")
    return Rollouts(total, discounted, torch.stack(visited) if keep_visited else None)


def _rows(states: States, rows: list[int], groups: int) -> States:
    """The states of some latents, ``[len(rows), E]``, out of a batch that is grouped by latent."""

    def pick(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.reshape(groups, -1, values.shape[-1])[rows]

    obs = states.obs.reshape(groups, -1, states.obs.shape[-1])[rows]
    return States(obs, states.layout, action=pick(states.action), physics=pick(states.physics))
