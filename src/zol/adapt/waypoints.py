r"""Waypoints: a far place is reached along ways through places of the data, by latents of directions.

A model that cannot be told a far goal may know how to move. Of two named quantities of the body, its place x
and its velocity v, the second one makes rewards that any model is prompted with as ever:

    z(u) = prompt of the reward r(s') = uᵀ v(s'),   for headings u evenly spread over the circle,

and the first one makes a map. K sampled states are landmarks, and so is the goal; between two of them that
are at most ``reach`` apart (in typical distances between neighbours) there is an edge, as long as the
straight line, and longer in proportion where the data are sparse. Walls are where no data are, so that ways
through the graph lead around them, and not along them, as long as walls are thicker than an edge. Acting
needs no memory: in state s the landmark nearest to x(s) knows the farthest one, w, that is a single edge away
on its shortest way, and the policy takes the latent of the heading towards it,

    z_t = z(u_t),   u_t = the heading nearest to x(w) − x(s_t).

The goal is the task's own; a task without one is given the sampled state with the largest reward. Nothing but
the named columns is known about the world.
"""

import math
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from zol import prompt
from zol.adapt.directions import goals_of
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.subgoals import next_subgoals
from zol.adapt.zol import score
from zol.common.config import Config
from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.models.base import Model

PLACES = ("place", "position")  # names that worlds give it


class WaypointConfig(Config):
    """Settings of the map."""

    place: str = ""
    """field of where the body is, two columns; the first of place and position unless told"""
    velocity: str = "velocity"
    """field whose first two columns are how the place changes"""
    landmarks: int = Field(default=1024, ge=1)
    """K: sampled states on the map"""
    reach: float = Field(default=6.0, gt=0)
    """length of the longest edge, in typical distances of a landmark from its nearest neighbour"""
    headings: int = Field(default=32, ge=4)
    """directions that latents are prompted for"""


@dataclass(frozen=True)
class Waypoints:
    """The policies of T tasks; called with observations ``[T, E, D]``."""

    model: Model
    layout: Layout
    place: str
    landmarks: Tensor  # [T, K, 2]
    following: Tensor  # x(w) of every landmark, [T, K, 2]
    headings: Tensor  # u, [H, 2]
    latents: Tensor  # z(u), [H, d]

    @torch.no_grad()
    def latent(self, obs: Tensor) -> Tensor:
        """z ``[T, E, d]`` for the states ``[T, E, D]``."""
        here = States(obs, self.layout)[self.place]  # [T, E, 2]
        nearest = torch.cdist(here, self.landmarks).argmin(-1, keepdim=True)  # [T, E, 1]
        towards = self.following.take_along_dim(nearest, dim=-2) - here
        return self.latents[(towards @ self.headings.mT).argmax(-1)]

    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        return self.model.act(obs, self.latent(obs))


def through_waypoints(problem: Problem, settings: WaypointConfig) -> Behaviour:
    """A policy per task that follows the shortest way; the latent that is shown is that of its first step."""
    evidence, layout = problem.evidence, problem.layout
    place = _field(layout, settings.place or next((n for n in PLACES if n in layout.names), PLACES[0]))
    velocity = _field(layout, settings.velocity)
    order = torch.randperm(len(evidence.obs), generator=problem.generator("landmarks"))
    sampled = States(evidence.obs, layout)[place][order[: settings.landmarks]]
    apart = torch.cdist(sampled, sampled).fill_diagonal_(torch.inf).amin(-1)
    limit = settings.reach * float(apart.median())
    landmarks, following, connected = [], [], []
    for goal in goals_of(problem):
        places = torch.cat([sampled, States(goal, layout)[place].unsqueeze(0)])
        after, left = next_subgoals(lengths(places, limit), math.inf)
        landmarks.append(places)
        following.append(places[after])
        connected.append(left.isfinite().double().mean())
    headings = spread(settings.headings).to(sampled)
    policy = Waypoints(
        problem.model,
        layout,
        place,
        torch.stack(landmarks),
        torch.stack(following),
        headings,
        heading_latents(problem, velocity, headings),
    )
    first = policy.latent(evidence.starts[:1].expand(len(evidence.tasks), 1, -1)).squeeze(1)  # [T, d]
    found = score(problem.model, evidence, first)
    extra = {"connected": torch.stack(connected).unsqueeze(0)}  # share of landmarks from which a way is known
    result = replace(found, configs=(settings.model_dump(),), diagnostics=dict(found.diagnostics) | extra)
    return Behaviour(result, policy)


def lengths(places: Tensor, limit: float) -> Tensor:
    """Lengths of edges ``[K, K]``, infinite where there is none.

    ‖x_i − x_j‖ · ½ (ρ̄/ρ_i + ρ̄/ρ_j), with ρ the number of landmarks within half the limit.
    """
    apart = torch.cdist(places, places).double()
    crowd = (apart <= limit / 2).sum(-1).double()  # ρ, at least 1: itself
    sparse = crowd.median() / crowd
    return torch.where(apart <= limit, apart * (sparse.unsqueeze(1) + sparse) / 2, torch.inf)


def spread(count: int) -> Tensor:
    """Unit vectors evenly spread over the circle, ``[count, 2]``."""
    angle = torch.arange(count) * (2 * math.pi / count)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def heading_latents(problem: Problem, velocity: str, headings: Tensor) -> Tensor:
    """The model's own prompt of the reward uᵀv for every heading u, ``[H, d]``."""
    evidence = problem.evidence
    speed = States(evidence.obs, problem.layout)[velocity][..., :2]  # [N, 2]
    return prompt.reward(problem.model, evidence.obs, headings @ speed.mT, problem.prompt)


def _field(layout: Layout, name: str) -> str:
    """A field of at least two columns, which a place and a velocity on a plane have."""
    if name not in layout.names:
        raise DataError(f"waypoints need it: {unknown_name('observation field', name, layout.names)}")
    found = layout.find(name)
    if found is not None and found.size < 2:
        raise DataError(f"'{name}' has one column; waypoints need two, of a place or a velocity on a plane")
    return name


WAYPOINTS = Method(through_waypoints, WaypointConfig(), single_latent=False)
