"""A public contract check for worlds: run it on your own."""

from collections.abc import Callable

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import States
from zol.tasks import Task
from zol.worlds.base import World
from zol.worlds.episode import episode, random_policy


def check_world(world: World, *, envs: int = 6, seed: int = 0, tolerance: float = 1e-6) -> None:
    """Check that a batched world keeps the promises that rollouts, explorers and reports rely on.

    Raises AssertionError with the broken promise. ``tolerance`` bounds how exactly a state can be restored
    from its physics. A random episode is played to look for terminal states.
    """

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    threads = getattr(world, "threads", "missing")
    assert threads is None or isinstance(threads, int), (
        f"a world says how many threads its simulator uses, or None; 'threads' is {threads}: "
        "derive the class from zol.worlds.World to get the default"
    )
    first = world.reset(envs, generator())
    physics = world.physics.clone()
    assert first.obs.shape == (envs, world.layout.obs_dim), "reset gives [n, D]"
    _check_starts(first, "reset")
    again = world.reset(envs, generator())
    assert torch.equal(first.obs, again.obs), "the same generator gives the same start states"
    assert torch.allclose(world.observe(physics), first.obs, atol=tolerance), "observe reads physics"
    covered = sum(field.size for field in world.layout.fields)
    assert covered == world.layout.obs_dim, "every observation column has a name"

    action = 2 * torch.rand(envs, world.action_dim, generator=generator()) - 1
    reached = world.step(action).obs.clone()
    world.reset(envs, generator())
    repeated = world.step(action).obs
    assert torch.equal(reached, repeated), "the same generator gives the same episode"
    restored = world.set_physics(physics)
    assert torch.allclose(restored.obs, first.obs, atol=tolerance), "set_physics restores the state"
    together = world.step(action)
    assert together.obs.shape == first.obs.shape, "step keeps the number of environments"
    assert bool(together.obs.isfinite().all()), "observations are finite"
    assert together.action is not None, "states carry the action that led to them"
    reached = together.obs.clone()
    world.set_physics(physics)
    if torch.equal(world.step(action).obs, reached):  # what a random world does depends on its neighbours
        world.set_physics(physics[:2])
        alone = world.step(action[:2]).obs
        assert torch.allclose(alone, reached[:2], atol=tolerance), "environments do not influence each other"
    _check_ends(world, envs, generator())
    for name, task in world.tasks.items():
        _check_task(world, name, task, together, generator)


def _check_starts(states: States, where: str) -> None:
    if states.terminated is not None:
        assert states.terminated.dtype == torch.bool, "'terminated' holds truth values"
        assert not bool(states.terminated.any()), f"no start state that {where} gives is terminal"


def _check_ends(world: World, envs: int, generator: torch.Generator) -> None:
    """Play at random: terminal states are told always or never, and can be told from the physics."""
    states = world.reset(envs, generator)
    tells = states.terminated is not None
    for step in episode(world, states, random_policy(world, generator), world.episode_length):
        now = step.states.terminated
        assert (now is not None) == tells, "'terminated' is given by reset and by every step, or by none"
        if now is None:
            return
        assert now.dtype == torch.bool, "'terminated' holds truth values"
        if bool(now.any()):
            physics = world.physics.clone()
            told = now if step.running is None else now[step.running]
            again = world.set_physics(physics if step.running is None else physics[step.running]).terminated
            assert again is not None, "set_physics says which states are terminal"
            assert torch.equal(again, told), "set_physics calls the same states terminal as step"
            stepped = world.set_physics(physics)
            for _ in range(3):
                stepped = world.step(random_policy(world, generator)(stepped))
            assert bool(stepped.obs.isfinite().all()), "an environment that is over can be stepped on"
            return


def _check_task(
    world: World, name: str, task: Task, states: States, generator: Callable[[], torch.Generator]
) -> None:
    envs = len(states.obs)
    reward = task(states)
    assert reward.shape == (envs,), f"task '{name}' gives one reward per environment"
    assert bool(reward.isfinite().all()), f"task '{name}' is finite"
    assert torch.equal(reward, task(states)), f"task '{name}' is a pure function"
    if task.starts is not None:
        physics = world.physics
        starts = task.starts(envs, generator())
        assert starts.shape == (envs, physics.shape[1]), f"the starts of '{name}' are simulator states [n, P]"
        assert torch.equal(starts, task.starts(envs, generator())), (
            f"the same generator gives the same starts of '{name}'"
        )
        _check_starts(world.set_physics(starts), f"task '{name}'")
    if task.success is not None:
        success = task.succeeded(states)
        assert torch.equal(success, task.succeeded(states)), f"success of '{name}' is a pure function"
    if task.goal is not None:
        _check_goal(world, name, task, task.goal)


def _check_goal(world: World, name: str, task: Task, goal: Tensor) -> None:
    assert goal.shape == (world.layout.obs_dim,), f"the goal of '{name}' is one observation [D]"
    assert bool(goal.isfinite().all()), f"the goal of '{name}' is finite"
    if task.success is None:
        return
    try:
        solved = task.succeeded(States(goal.unsqueeze(0), world.layout))
    except DataError:  # success is told by the simulator state or the action, which a goal does not have
        return
    assert bool(solved), f"the goal of '{name}' solves it"
