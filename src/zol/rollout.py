"""Batched evaluation: every latent, task and episode of a world in one batch, one policy call per step.

All latents start from the same states (paired comparisons), which are drawn once. Rewards are the
tasks' own functions of the states reached.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich.progress import Progress
from torch import Tensor

from zol.common.errors import DataError
from zol.common.threads import one_torch_thread
from zol.fields import States
from zol.models.base import Latent, Model, identity, policy_at
from zol.tasks import Task
from zol.tasks.grouped import grouped_rewards, stacked
from zol.worlds.base import World, find_task

# Steps whose rewards are computed together.
REWARDS_AT_ONCE = 25

Policy = Callable[[Tensor], Tensor]
"""Actions ``[L, E, A]`` for observations ``[L, E, D]`` of L behaviours in E episodes each."""


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
    policy: Policy | None = None,
    keep_visited: bool = False,
    progress: Progress | None = None,
) -> Rollouts:
    """Run each latent in ``episodes`` environments and score it by its own task.

    ``policy`` acts instead of π_z where a behaviour is more than one latent (:mod:`zol.adapt.gpi`); the
    latents then only name the tasks and the model.
    """
    if not latents:
        raise DataError("there are no latents to roll out")
    own = identity(model)
    z = torch.stack([latent.require(own) for latent in latents])  # [L, d]
    tasks = [find_task(world, latent.task) for latent in latents]
    shape = (len(latents), episodes)
    everywhere = z.unsqueeze(1).expand(*shape, -1)  # [L, E, d], expanded once instead of at every step
    chosen = policy or policy_at(model, everywhere)

    def act(states: States) -> Tensor:
        return chosen(states.obs.to(z.dtype).reshape(*shape, -1)).flatten(0, 1)

    world.reset(episodes, generator)
    start = world.physics.repeat(len(latents), 1)  # every latent starts from the same states
    length = world.episode_length if steps is None else steps
    with one_torch_thread(getattr(world, "threaded", False)):
        return _run(
            world, act, lambda s: grouped_rewards(tasks, s), start, length, shape, keep_visited, progress
        )


def random_returns(
    world: World, tasks: Sequence[Task], *, episodes: int, generator: torch.Generator
) -> Tensor:
    """What uniformly random actions earn, ``[T, E]``: the same episodes are scored by all tasks."""
    world.reset(episodes, generator)
    total = torch.zeros(len(tasks), episodes, dtype=torch.float64)
    with one_torch_thread():
        for _ in range(world.episode_length):
            states = world.step(2 * torch.rand(episodes, world.action_dim, generator=generator) - 1)
            total += torch.stack([task(states).double() for task in tasks])
    return total


@torch.no_grad()
def _run(
    world: World,
    policy: Callable[[States], Tensor],
    rewards: Callable[[States], Tensor],
    start: Tensor,
    steps: int,
    shape: tuple[int, int],
    keep_visited: bool,
    progress: Progress | None,
) -> Rollouts:
    if steps < 1:
        raise DataError("an episode has at least one step")
    states = world.set_physics(start)
    total, discounted = torch.zeros(2, *shape, dtype=torch.float64)
    recent: list[States] = []
    visited: list[Tensor] = []
    bar = progress.add_task("rollouts", total=steps) if progress else None
    for t in range(steps):
        states = world.step(policy(states))
        recent.append(states)
        if len(recent) == REWARDS_AT_ONCE or t == steps - 1:
            r = rewards(stacked(recent))  # [K, L, E]
            times = torch.arange(t + 1 - len(recent), t + 1, dtype=torch.float64)
            total += r.sum(0)
            discounted += torch.einsum("k,kle->le", (1 - world.discount) * world.discount**times, r)
            recent.clear()
        if keep_visited:
            visited.append(states.obs.reshape(*shape, -1).clone())
        if progress and bar is not None:
            progress.advance(bar)
    return Rollouts(total, discounted, torch.stack(visited) if keep_visited else None)
