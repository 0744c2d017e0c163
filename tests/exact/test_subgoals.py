"""Chains of subgoals: travel times are exact where the model is, and a far goal is reached by near ones."""

import pytest
import torch

from zol.adapt import solve
from zol.adapt.problem import Problem
from zol.adapt.subgoals import cell_latents, next_subgoals, travel_times
from zol.evidence import Evidence
from zol.fields import Layout
from zol.models.base import Measure
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP

LENGTH = 9  # of a corridor that bends back on itself: only the way along it is open


def corridor(discount: float = 0.8) -> FiniteMDP:
    """Actions: one cell back, stay, one cell on."""
    transition = torch.zeros(LENGTH, 3, LENGTH, dtype=torch.float64)
    for cell in range(LENGTH):
        for action, step in enumerate((-1, 0, 1)):
            transition[cell, action, min(max(cell + step, 0), LENGTH - 1)] = 1.0
    start = torch.zeros(LENGTH, dtype=torch.float64)
    start[0] = 1.0
    return FiniteMDP(transition, start, discount)


def model(measure: Measure | None = None) -> ExactFB:
    density = torch.full((LENGTH,), 1 / LENGTH, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    return ExactFB(corridor(), density, temperature=1e-3, measure=measure, generator=generator)


EVERY = torch.eye(LENGTH, dtype=torch.float64)
APART = (torch.arange(LENGTH).unsqueeze(1) - torch.arange(LENGTH)).abs().double()


@pytest.mark.parametrize("measure", [Measure(), Measure(normalised=True), Measure(begins="current")])
def test_times_are_numbers_of_steps(measure: Measure) -> None:
    exact = model(measure)
    found = travel_times(exact, EVERY, cell_latents(exact, EVERY, EVERY))
    torch.testing.assert_close(found, APART, rtol=1e-3, atol=1e-3)


def test_ways_are_shortest_and_subgoals_lie_as_far_along_them_as_reach_allows() -> None:
    following, left = next_subgoals(APART, limit=3.0)
    assert left.tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert following.tolist() == [3, 4, 5, 6, 7, 8, 8, 8, 8]


def test_where_no_way_is_known_the_goal_itself_is_tried() -> None:
    times = APART.clone()
    times[:4, 4:] = torch.inf
    following, left = next_subgoals(times, limit=2.0)
    assert following[:4].tolist() == [LENGTH - 1] * 4
    assert left.isinf().tolist() == [True] * 4 + [False] * 5


def test_a_goal_beyond_the_models_sight_is_reached() -> None:
    """The model sees three cells far: plain goals stay where they are, the chain walks to the end."""
    exact = Shortsighted(model())
    task = Task("end", lambda states: states.obs[..., -1], goal=EVERY[-1])
    evidence = Evidence(("end",), EVERY, EVERY[-1:], EVERY[:1])
    problem = Problem(exact, evidence, "", {"end": task}, Layout.plain(LENGTH))
    behaviour = solve("subgoals reach=0.6 landmarks=9", problem)
    assert behaviour.policy is not None
    assert float(behaviour.found.diagnostics["connected"]) == 1.0
    walked = _walk(lambda obs: behaviour.policy(obs.unsqueeze(0))[0], exact)
    assert walked == LENGTH - 1
    plain = solve("goal", problem).found.z[0, 0]
    assert _walk(lambda obs: exact.act(obs, plain.expand(len(obs), -1)), exact) == 0


def _walk(act, exact) -> int:
    """The cell that the policy is in after as many steps as there are cells."""
    obs = EVERY[:1]
    for _ in range(LENGTH):
        action = torch.nn.functional.one_hot(act(obs).argmax(-1), 3).double()
        obs = torch.einsum("ns,na,sat->nt", obs, action, exact.mdp.transition)
    return int(obs.argmax())


class Shortsighted(torch.nn.Module):
    """An exact model whose policies stay where they are if their goal is more than three cells away."""

    def __init__(self, exact: ExactFB) -> None:
        super().__init__()
        self.exact = exact

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["exact"], name)

    def forward(self, obs: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.exact(obs, z, action)

    def act(self, obs: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        chosen = self.exact.act(obs, z)
        goal = (z @ self.exact.features().mT).argmax(-1)
        far = (obs.argmax(-1) - goal).abs() > 3
        return torch.where(far.unsqueeze(-1), torch.tensor([0.0, 1.0, 0.0], dtype=chosen.dtype), chosen)
