"""The public check of worlds passes ours and catches broken promises."""

from dataclasses import replace

import pytest
import torch

from zol.tasks import Task
from zol.testing import check_world
from zol.worlds.donut import Donut
from zol.worlds.tabular import TabularWorld, corridor, four_rooms


@pytest.mark.parametrize(
    "world",
    [Donut(), four_rooms(), four_rooms(slip=0.2), corridor(), corridor(slip=0.2)],
    ids=["donut", "four_rooms", "slippery_rooms", "corridor", "slippery_corridor"],
)
def test_ours_pass(world) -> None:
    check_world(world)


class Corridor(TabularWorld):
    """The corridor, to be broken."""

    def __init__(self) -> None:
        sound = corridor()
        super().__init__(sound.name, sound.mdp, sound.episode_length, sound.tasks.values())


class SilentRestore(Corridor):
    def set_physics(self, physics):
        return replace(super().set_physics(physics), terminated=torch.zeros(len(physics), dtype=torch.bool))


class StartsAtTheEnd(Corridor):
    def reset(self, n, generator):
        super().reset(n, generator)
        return self.set_physics(torch.zeros(n, 1))


class ForgetsToSay(Corridor):
    def step(self, action):
        return replace(super().step(action), terminated=None)


class Numbers(Corridor):
    def _states(self, action):
        states = super()._states(action)
        assert states.terminated is not None
        return replace(states, terminated=states.terminated.float())


class OwnDice(Corridor):
    def step(self, action):
        return super().step(torch.rand(action.shape))


class NoThreads(Corridor):
    threads = "many"  # type: ignore[assignment]


def with_task(**changes):
    world = Corridor()
    world.tasks = {"right": replace(world.tasks["right"], **changes)}
    return world


@pytest.mark.parametrize(
    ("world", "promise"),
    [
        (SilentRestore(), "same states terminal as step"),
        (StartsAtTheEnd(), "no start state that reset gives is terminal"),
        (ForgetsToSay(), "by reset and by every step, or by none"),
        (Numbers(), "holds truth values"),
        (OwnDice(), "the same generator gives the same episode"),
        (NoThreads(), "how many threads"),
        (with_task(starts=lambda n, g: torch.zeros(n, 1)), "no start state that task 'right' gives"),
        (with_task(starts=lambda n, g: torch.ones(n, 2)), "starts of 'right' are simulator states"),
        (with_task(starts=lambda n, g: 1 + torch.rand(n, 1)), "same starts of 'right'"),
        (with_task(goal=torch.zeros(3)), "goal of 'right' is one observation"),
        (with_task(goal=torch.eye(9)[2]), "goal of 'right' solves it"),
        (with_task(success=lambda s: torch.rand(len(s.obs)) > 0.5), "success of 'right' is a pure function"),
    ],
)
def test_a_broken_promise_is_named(world, promise: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=promise):
        check_world(world, envs=12)


def test_goals_that_need_more_than_an_observation_are_let_pass() -> None:
    world = Corridor()
    by_physics = lambda s: s.need_physics()[..., 0] > 7  # noqa: E731
    world.tasks = {"right": Task("right", lambda s: s.obs[..., 0], goal=torch.zeros(9), success=by_physics)}
    check_world(world)
