"""Ways through places of the data: around walls, by latents of directions, without memory."""

from typing import Any

import pytest
import torch

from zol.adapt import solve
from zol.adapt.problem import Problem
from zol.adapt.ways import heading_latents, spread
from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.fields import Field, Layout, States
from zol.models.base import Measure
from zol.tasks import Task

LAYOUT = Layout(4, (Field("place", 0, 2, "m"), Field("velocity", 2, 2, "m/s")))
STEP = 0.1
END = torch.tensor([2.5, 0.5, 0.0, 0.0])


class Driver(torch.nn.Module):
    """A point that moves where z says: its features are velocities, and it has learned that perfectly."""

    obs_dim, action_dim, z_dim, discount = 4, 2, 2, 0.9

    def __init__(self) -> None:
        super().__init__()
        self.measure = Measure()

    def backward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs[..., 2:]

    def forward(self, obs: torch.Tensor, z: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (action / (1 - self.discount)).unsqueeze(0) + 0 * z + 0 * obs[..., :2]

    def act(self, obs: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return z / z.norm(dim=-1, keepdim=True).clamp_min(1e-9) + 0 * obs[..., :2]

    def project(self, z: torch.Tensor) -> torch.Tensor:
        return z * 2**0.5 / z.norm(dim=-1, keepdim=True).clamp_min(1e-9)


def free(place: torch.Tensor) -> torch.Tensor:
    """Three squares up, one to the right, three down: between the arms is a wall one metre thick."""
    x, y = place.unbind(-1)
    return (x > 0) & (x < 3) & (y > 0) & (y < 3) & ((x < 1) | (x > 2) | (y > 2))


def problem(**task: Any) -> Problem:
    """5,000 states of this place; one task, to be at the end of the other arm."""
    generator = torch.Generator().manual_seed(0)
    place = 3 * torch.rand(10_000, 2, generator=generator)
    velocity = torch.randn(10_000, 2, generator=generator)
    obs = torch.cat([place, velocity], dim=-1)[free(place)][:5_000]
    there = Task("there", lambda s: -(s["place"] - END[:2]).norm(dim=-1), **task)
    start = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    evidence = Evidence.label(States(obs, LAYOUT), there, start)
    return Problem(Driver(), evidence, "", {"there": there}, LAYOUT)


def test_a_latent_per_heading_is_the_models_own_prompt_of_the_speed_that_way() -> None:
    headings = spread(8)
    torch.testing.assert_close(headings.norm(dim=-1), torch.ones(8))
    found = heading_latents(problem(), "velocity", headings)
    towards = found / found.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(towards, headings, atol=0.06, rtol=0)  # 5,000 velocities are nearly isotropic


@pytest.mark.parametrize("goal", [END, None])
def test_the_way_leads_around_the_wall_to_the_goal(goal: torch.Tensor | None) -> None:
    behaviour = solve("waypoints landmarks=400 headings=64", problem(goal=goal))
    assert behaviour.policy is not None
    assert float(behaviour.found.diagnostics["connected"]) == 1.0
    here = torch.tensor([[[0.5, 0.5]]])
    walked = [here]
    for _ in range(110):
        obs = torch.cat([here, torch.zeros(1, 1, 2)], dim=-1)
        here = here + STEP * behaviour.policy(obs)
        walked.append(here)
    path = torch.cat(walked).squeeze(1)
    aim = END if goal is not None else problem().evidence.obs[problem().evidence.rewards[0].argmax()]
    assert float((path - aim[:2]).norm(dim=-1).min()) < 2 * STEP
    inside = free(path)
    assert float(inside.double().mean()) > 0.95  # it may cut a corner by a step
    straight = (path[:, 0] > 1.2) & (path[:, 0] < 1.8) & (path[:, 1] < 1.5)
    assert not bool(straight.any())  # never through the wall
    # the latent that is shown is that of the first step: up
    assert float(behaviour.found.z[0, 0] @ torch.tensor([0.0, 1.0])) > 1.2


def test_what_a_map_needs_is_said() -> None:
    given = problem()
    with pytest.raises(DataError, match="waypoints need it: no observation field called 'speed'"):
        solve('waypoints velocity="speed"', given)
    flat = Layout(4, (Field("place", 0), Field("velocity", 2, 2)))
    with pytest.raises(DataError, match="'place' has one column; waypoints need two"):
        solve("waypoints", Problem(given.model, given.evidence, "", given.tasks, flat))
