"""Batched evaluation: every latent, task and episode of a world in one batch, one policy call per step.

All latents of a task start from the same states (paired comparisons), which are drawn once: from the world's
own start distribution, or from the task's where it has one. Rewards are the tasks' own functions of the
states reached. An episode that is over early earns nothing from then on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich.progress import Progress
from torch import Tensor

from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.fields import States
from zol.models.base import Latent, Model, identity, policy_at, sampled_policy
from zol.tasks import Condition, Starts, Task
from zol.tasks.grouped import grouped_rewards, grouped_success, stacked
from zol.worlds.base import World, find_task
from zol.worlds.episode import Step, episode, random_policy

# Steps whose rewards are computed together.
REWARDS_AT_ONCE = 25

Policy = Callable[[Tensor], Tensor]
"""Actions ``[L, E, A]`` for observations ``[L, E, D]`` of L behaviours in E episodes each."""


@dataclass(frozen=True)
class Rollouts:
    """What L latents earned in E episodes each; those of one task all begin in the same E start states.

    Success is 1 where the task was solved and 0 where it was not. It is NaN for a task without a test of
    success, and None if no task has one. Start states do not count: like a reward, success belongs to a
    state that an action led to.
    """

    returns: Tensor  # Σ_t r_t, [L, E]
    discounted: Tensor  # (1 − γ) Σ_t γ^t r_t with the model's γ, the scale of offline estimates, [L, E]
    visited: Tensor | None  # observations [steps, L, E, D] if asked for; an episode that is over stays put
    lengths: Tensor  # steps until the episode was over or cut, [L, E]
    success: Tensor | None = None  # at any time, [L, E]
    success_at_end: Tensor | None = None  # in the last state, [L, E]


def evaluate(
    world: World,
    model: Model,
    latents: Sequence[Latent],
    *,
    episodes: int,
    generator: torch.Generator,
    steps: int | None = None,
    policy: Policy | None = None,
    sampled: bool = False,
    tasks: Sequence[Task] | None = None,
    keep_visited: bool = False,
    progress: Progress | None = None,
) -> Rollouts:
    """Run each latent in ``episodes`` environments and score it by its own task.

    ``policy`` acts instead of π_z where a behaviour is more than one latent (:mod:`zol.adapt.gpi`); the
    latents then only name the tasks and the model. ``sampled`` draws actions from π_z, after the start states
    and from a generator that they seed, instead of taking its mean. ``tasks`` are those of the latents, in
    their order; unless given, they are the world's tasks of the latents' names.
    """
    if not latents:
        raise DataError("there are no latents to roll out")
    own = identity(model)
    z = torch.stack([latent.require(own, model.z_dim) for latent in latents])  # [L, d]
    scored_by = list(tasks) if tasks is not None else [find_task(world, latent.task) for latent in latents]
    if len(scored_by) != len(latents):
        raise DataError(f"{len(latents)} latents were given with {len(scored_by)} tasks: one task per latent")
    shape = (len(latents), episodes)
    everywhere = z.unsqueeze(1).expand(*shape, -1)  # [L, E, d], expanded once instead of at every step

    def act(states: States) -> Tensor:
        return chosen(states.obs.to(z.dtype).reshape(*shape, -1)).flatten(0, 1)

    start = start_states(world, scored_by, episodes, generator)
    if sampled:
        if policy is not None:
            raise DataError("a behaviour of more than one latent is not sampled: leave sampled=True out")
        drawn = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        chosen = sampled_policy(model, everywhere, drawn)
    else:
        chosen = policy or policy_at(model, everywhere)
    length = world.episode_length if steps is None else steps
    with one_torch_thread(world.threads is not None):
        return _run(world, act, scored_by, start, length, model.discount, keep_visited, progress)


def random_returns(
    world: World, tasks: Sequence[Task], *, episodes: int, generator: torch.Generator
) -> Tensor:
    """What uniformly random actions earn, ``[T, E]``: tasks with the same starts share their episodes."""
    begins = list(dict.fromkeys(task.starts for task in tasks))
    group = [begins.index(task.starts) for task in tasks]
    start = start_states(world, [tasks[group.index(k)] for k in range(len(begins))], episodes, generator)
    total = torch.zeros(len(tasks), episodes, dtype=torch.float64)
    unsolved = torch.ones(total.shape, dtype=torch.bool)
    with one_torch_thread():
        first = world.set_physics(start.flatten(0, 1))
        for step in episode(world, first, random_policy(world, generator), world.episode_length):
            parts = _parts(step.states, len(begins))
            rewards = torch.stack([task(parts[k]).double() for k, task in zip(group, tasks, strict=True)])
            if step.running is not None:
                rewards = torch.where(step.running.view(-1, episodes)[group], rewards, 0.0)
            for row, task in enumerate(tasks):
                if task.ends_at_success:
                    rewards[row] = torch.where(unsolved[row], rewards[row], 0.0)
                    unsolved[row] &= ~task.succeeded(parts[group[row]])
            total += rewards
    return total


def _parts(states: States, count: int) -> list[States]:
    """The states cut into so many parts of equal size, without copying."""
    if count == 1:
        return [states]
    size = len(states.obs) // count
    return [states.rows(slice(k * size, (k + 1) * size)) for k in range(count)]


def start_states(
    world: World, tasks: Sequence[Task | None], episodes: int, generator: torch.Generator
) -> Tensor:
    """Simulator states ``[T, E, P]`` in which episodes of these tasks begin.

    Tasks without start states of their own (and None, no task at all) share E states of the world. All others
    draw theirs from generators of one seed, so that they do not depend on which tasks stand beside them.
    """
    world.reset(episodes, generator)
    drawn: dict[Starts | None, Tensor] = {None: world.physics}
    own = [task for task in tasks if task is not None and task.starts is not None]
    if own:
        seed = int(torch.randint(2**62, (), generator=generator))
        for task in own:
            if task.starts is not None and task.starts not in drawn:
                found = task.starts(episodes, torch.Generator().manual_seed(seed))
                if found.shape != world.physics.shape:
                    raise DataError(
                        f"the start states of task '{task.name}' have shape {tuple(found.shape)}; {episodes} "
                        f"simulator states of {world.name} have shape {tuple(world.physics.shape)}"
                    )
                drawn[task.starts] = found.to(world.physics.dtype)
    return torch.stack([drawn[None if task is None else task.starts] for task in tasks])


def _fixed_latents(model: Model, z: Tensor) -> Policy:
    """π_z; a model that can prepare for latents that stay offers that as ``at(z)``."""
    prepare: Callable[[Tensor], Policy] | None = getattr(model, "at", None)
    return prepare(z) if prepare is not None else lambda obs: model.act(obs, z)


@torch.no_grad()
def _run(
    world: World,
    policy: Callable[[States], Tensor],
    tasks: Sequence[Task],
    start: Tensor,  # [L, E, P]
    steps: int,
    discount: float,
    keep_visited: bool,
    progress: Progress | None,
) -> Rollouts:
    if steps < 1:
        raise DataError("an episode has at least one step")
    shape = start.shape[:2]
    tally = _Tally(tasks, shape, discount)
    recent: list[Step] = []
    visited: list[Tensor] = []
    bar = Ticker(progress, "rollouts", steps)
    first = world.set_physics(start.flatten(0, 1))
    for step in episode(world, first, policy, steps, over=_ends_at_success(tasks)):
        recent.append(step)
        if len(recent) == REWARDS_AT_ONCE:
            tally.add(recent)
            recent.clear()
        if keep_visited:
            visited.append(step.states.obs.reshape(*shape, -1).clone())
        bar.advance()
    if recent:
        tally.add(recent)
    bar.finish()  # they may all have been over earlier
    return tally.rollouts(torch.stack(visited) if keep_visited else None)


class _Tally:
    """Sums over the steps of L · E episodes, many steps at a time."""

    def __init__(self, tasks: Sequence[Task], shape: tuple[int, ...], discount: float) -> None:
        self.tasks, self.discount, self.steps = tasks, discount, 0
        self.returns, self.discounted = torch.zeros(2, *shape, dtype=torch.float64)
        self.lengths = torch.zeros(shape, dtype=torch.int64)
        self.tested = torch.tensor([task.success is not None for task in tasks])
        self.ever, self.at_end = torch.zeros(2, *shape, dtype=torch.bool)

    def add(self, recent: Sequence[Step]) -> None:
        """Count K successive steps."""
        states = stacked([step.states for step in recent])
        r = grouped_rewards(self.tasks, states)  # [K, L, E]
        if all(step.running is None for step in recent):
            self.lengths += len(recent)
        else:  # rewards of episodes that were over do not count
            everybody = torch.ones(r[0].numel(), dtype=torch.bool)
            masks = [everybody if step.running is None else step.running for step in recent]
            running = torch.stack(masks).view_as(r)
            r = torch.where(running, r, 0.0)
            self.lengths += running.sum(0)
        times = torch.arange(self.steps, self.steps + len(recent), dtype=torch.float64)
        self.returns += r.sum(0)
        self.discounted += torch.einsum("k,kle->le", (1 - self.discount) * self.discount**times, r)
        self.steps += len(recent)
        if bool(self.tested.any()):
            success = grouped_success(self.tasks, states)
            self.ever |= success.any(0)
            self.at_end = success[-1]

    def rollouts(self, visited: Tensor | None) -> Rollouts:
        """Everything that was counted."""
        found: list[Tensor | None] = [None, None]
        if bool(self.tested.any()):
            unknown = torch.tensor(torch.nan, dtype=torch.float64)
            tested = self.tested.unsqueeze(-1)
            found = [torch.where(tested, solved.double(), unknown) for solved in (self.ever, self.at_end)]
        return Rollouts(self.returns, self.discounted, visited, self.lengths, *found)


def _ends_at_success(tasks: Sequence[Task]) -> Condition | None:
    """Whether success ends the episode of states ``[L·E, …]``, for the tasks that say so."""
    ends = torch.tensor([task.ends_at_success for task in tasks])
    if not bool(ends.any()):
        return None
    return lambda states: (grouped_success(tasks, stacked([states]))[0] & ends.unsqueeze(-1)).flatten()
