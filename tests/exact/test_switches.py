"""Facts that switches change: what they do is read off transitions, and the plan is the shortest."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from zol.adapt import solve
from zol.adapt.problem import Problem
from zol.adapt.switches import SwitchConfig, numbered, switches, uses_left
from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.fields import Field, Layout, States
from zol.models.base import Measure
from zol.tasks import Task

LAYOUT = Layout(5, (Field("place", 0, 2, "m"), Field("lamps", 2, 3)))
AT = torch.tensor([[0.2, 0.2], [1.0, 1.0], [1.8, 0.2]])  # where the three switches are
DOES = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 1]]).bool()  # which lamps they change
STEP, NEAR = 0.1, 0.12
START = torch.tensor([[1.0, 1.9, 0.0, 0.0, 0.0]])  # no switch is in the way of another one from here


def moved(obs: Tensor, action: Tensor) -> Tensor:
    """A step; whoever comes near a switch uses it."""
    place = (obs[..., :2] + STEP * action).clamp(0, 2)
    before, after = (torch.cdist(x, AT) < NEAR for x in (obs[..., :2], place))
    used = after & ~before  # [N, 3]
    changed = (used.double() @ DOES.double()) % 2 > 0.5
    return torch.cat([place, ((obs[..., 2:] > 0.5) ^ changed).to(obs)], dim=-1)


class Walker(torch.nn.Module):
    """It moves where z says: its features are its place, and it has learned that perfectly."""

    obs_dim, action_dim, z_dim, discount = 5, 2, 2, 0.9

    def __init__(self) -> None:
        super().__init__()
        self.measure = Measure()

    def backward(self, obs: Tensor) -> Tensor:
        return obs[..., :2]

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        return (obs[..., :2] + action / (1 - self.discount)).unsqueeze(0) + 0 * z

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        return z / z.norm(dim=-1, keepdim=True).clamp_min(1e-9) + 0 * obs[..., :2]

    def project(self, z: Tensor) -> Tensor:
        return z * 2**0.5 / z.norm(dim=-1, keepdim=True).clamp_min(1e-9)


def problem(goal: tuple[int, int, int]) -> Problem:
    """6,000 random steps from random places, with random lamps."""
    generator = torch.Generator().manual_seed(0)
    lamps = torch.randint(2, (6_000, 3), generator=generator).float()
    before = torch.cat([2 * torch.rand(6_000, 2, generator=generator), lamps], dim=-1)
    turn = 2 * torch.pi * torch.rand(6_000, generator=generator)
    after = moved(before, torch.stack([turn.cos(), turn.sin()], dim=-1))
    wanted = torch.tensor([0.0, 0.0, *goal])
    task = Task("lamps", lambda s: -(s["lamps"] - wanted[2:]).abs().sum(-1), goal=wanted)
    evidence = replace(Evidence.label(States(after, LAYOUT), task, START), before=before)
    return Problem(Walker(), evidence, "", {"lamps": task}, LAYOUT)


SETTINGS = SwitchConfig(facts="lamps")


def test_what_switches_do_and_where_is_read_off_transitions() -> None:
    evidence = problem((1, 1, 1)).evidence
    assert evidence.before is not None
    before, after = States(evidence.before, LAYOUT), States(evidence.obs, LAYOUT)
    patterns, states = switches(before, after, SETTINGS, "place")
    found = {tuple(row): place for row, place in zip(patterns.tolist(), states[:, :2], strict=True)}
    assert set(found) == {tuple(row) for row in DOES.tolist()}
    for row, where in zip(DOES.tolist(), AT, strict=True):
        assert float((found[tuple(row)] - where).norm()) < NEAR


def test_the_number_of_uses_left_is_the_least_there_is() -> None:
    """Against trying out all subsets of switches: using one twice undoes it."""
    for goal in product([False, True], repeat=3):
        left = uses_left(torch.tensor(goal), DOES)
        for facts in product([False, True], repeat=3):
            slow = [
                sum(subset)
                for subset in product([0, 1], repeat=3)
                if (torch.tensor(facts) ^ ((torch.tensor(subset) @ DOES.long()) % 2 == 1)).tolist()
                == list(goal)
            ]
            assert int(left[numbered(torch.tensor(facts))]) == min(slow)


def test_what_no_switch_can_do_is_unreached() -> None:
    left = uses_left(torch.tensor([True, True]), torch.tensor([[True, True]]))
    assert left[0] == 1
    assert left[3] == 0
    assert left[1] == left[2] > 1000


@pytest.mark.parametrize("goal", list(product([0, 1], repeat=3))[1:])
def test_every_goal_is_reached(goal: tuple[int, int, int]) -> None:
    behaviour = solve('switches facts="lamps" landmarks=600', problem(goal))
    assert behaviour.policy is not None
    assert float(behaviour.found.diagnostics["switches"]) == 3
    obs = START
    for _ in range(150):
        obs = moved(obs, behaviour.policy(obs.unsqueeze(0))[0])
        if obs[0, 2:].tolist() == list(goal):
            return
    raise AssertionError(f"lamps are {obs[0, 2:].tolist()} after 150 steps, {goal} was wanted")


def test_what_it_needs_is_said() -> None:
    given = problem((1, 0, 0))
    with pytest.raises(DataError, match="switches need facts: no observation field called 'buttons'"):
        solve("switches", given)
    with pytest.raises(DataError, match="read off whole transitions"):
        solve('switches facts="lamps"', replace(given, evidence=replace(given.evidence, before=None)))
    with pytest.raises(DataError, match="no change was seen 4000 times"):
        solve('switches facts="lamps" least=4000', given)
