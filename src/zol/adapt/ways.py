r"""Ways through places of the data: a map that sampled states make, and latents that lead along it.

Of a named quantity x, the place, K sampled states are landmarks, spread out so that each is the farthest from
those before it; targets join them. Two places that are at most ``reach`` apart (in typical distances between
neighbours) are joined by an edge, as long as the straight line, and longer where the data are sparse. Walls
are where no data are, so that ways through the graph lead around them, and not along them, as long as walls
are thicker than an edge. The waypoint w of a landmark is the farthest one that is a single edge away on its
shortest way to the target. A state takes the waypoint of the landmark nearest to it, so that acting needs no
memory.

Which latent leads from a state s to w depends on what the model knows. Where a second quantity v says how the
place changes, rewards uᵀv are prompted as ever, for headings u evenly spread over the circle; where there is
none, the direction in the features is taken, as HILP does:

    z_t = z(u_t),  z(u) the prompt of r(s') = uᵀ v(s'),  u_t the heading nearest to x(w) − x(s_t)
    z_t = Π( φ(w) − φ(s_t) )
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor

from zol import prompt
from zol.adapt.problem import Problem
from zol.adapt.subgoals import next_subgoals
from zol.common.config import Config
from zol.common.errors import DataError, unknown_name
from zol.fields import Layout, States
from zol.models.base import Model

PLACES = ("place", "position", "effector")  # names that worlds give it
VELOCITY = "velocity"


class MapConfig(Config):
    """Settings of the map."""

    place: str = ""
    """field of where the body is; the first of place, position and effector unless told"""
    velocity: str = ""
    """field whose first columns are how a place of two columns changes; velocity, if there is one, unless
    told; none: directions of the features"""
    landmarks: int = Field(default=1024, ge=1)
    """K: sampled states on the map"""
    reach: float = Field(default=3.0, gt=0)
    """length of the longest edge, in typical distances of a landmark from its nearest neighbour"""
    headings: int = Field(default=32, ge=4)
    """directions that latents are prompted for"""


class Steering(Protocol):
    """Latents that lead from states to waypoints."""

    def __call__(self, obs: Tensor, waypoint: Tensor) -> Tensor:
        """z ``[…, d]`` for states ``[…, D]`` and the states to reach ``[…, D]``."""


@dataclass(frozen=True)
class Headings:
    """One latent per heading, prompted by rewards of velocity."""

    layout: Layout
    place: str
    headings: Tensor  # u, [H, 2]
    latents: Tensor  # z(u), [H, d]

    def __call__(self, obs: Tensor, waypoint: Tensor) -> Tensor:
        """The latent of the heading that is nearest to the straight line."""
        here, there = (States(x, self.layout)[self.place] for x in (obs, waypoint))
        return self.latents[((there - here) @ self.headings.mT).argmax(-1)]


@dataclass(frozen=True)
class Directions:
    """The direction in the features."""

    model: Model

    def __call__(self, obs: Tensor, waypoint: Tensor) -> Tensor:
        """Π(φ(w) − φ(s))."""
        return prompt.towards(self.model, obs, waypoint)


@dataclass(frozen=True)
class Ways:
    """Shortest ways from everywhere to G targets; a target is a state, the last landmark of its own map."""

    layout: Layout
    place: str
    states: Tensor  # landmarks and, last, the target, [G, K + 1, D]
    following: Tensor  # number of the waypoint of every landmark, [G, K + 1]
    left: Tensor  # length of the way that is left, infinite where none is known, [G, K + 1]

    def nearest(self, obs: Tensor) -> Tensor:
        """The landmark nearest to every state, by target: ``[G, …] → [G, …]`` numbers."""
        places = States(self.states, self.layout)[self.place]
        return torch.cdist(States(obs, self.layout)[self.place], places).argmin(-1)

    def waypoints(self, obs: Tensor) -> Tensor:
        """The state to head for next, for every target and state: ``[G, E, D] → [G, E, D]``."""
        number = self.following.gather(-1, self.nearest(obs))
        return self.states.take_along_dim(number.unsqueeze(-1), dim=1)

    def lengths(self, obs: Tensor) -> Tensor:
        """How long the way to every target is from these states, ``[G, E, D] → [G, E]``."""
        return self.left.gather(-1, self.nearest(obs))

    @property
    def connected(self) -> Tensor:
        """Share of the landmarks from which a way is known, ``[G]``."""
        return self.left.isfinite().double().mean(-1)


def ways_to(targets: Sequence[Tensor], problem: Problem, settings: MapConfig) -> Ways:
    """Ways to states ``[D]``, through landmarks drawn from the evidence."""
    layout, obs, place = problem.layout, problem.evidence.obs, place_of(problem.layout, settings)
    places = States(obs, layout)[place]
    chosen = obs[spread_out(places, settings.landmarks)]
    sampled = States(chosen, layout)[place]
    apart = torch.cdist(sampled, sampled).fill_diagonal_(torch.inf).amin(-1)
    limit = settings.reach * float(apart.median())
    states, following, left = [], [], []
    for target in targets:
        every = torch.cat([chosen, target.unsqueeze(0)])
        after, remaining = next_subgoals(edges(States(every, layout)[place], places, limit), math.inf)
        states.append(every)
        following.append(after)
        left.append(remaining)
    return Ways(layout, place, torch.stack(states), torch.stack(following), torch.stack(left))


def has_a_place(layout: Layout) -> bool:
    """Whether observations say by name where the body is."""
    return any(name in layout.names for name in PLACES)


def place_of(layout: Layout, settings: MapConfig) -> str:
    """The field that says where the body is."""
    place = settings.place or next((name for name in PLACES if name in layout.names), PLACES[0])
    _require_columns(layout, place)
    return place


def spread_out(places: Tensor, count: int) -> Tensor:
    """Numbers of up to ``count`` places ``[N, 2 or more]``, each the one farthest from those before it."""
    chosen, near = [0], (places - places[0]).square().sum(-1)
    while len(chosen) < count and float(near.max()) > 0:
        chosen.append(int(near.argmax()))
        near = torch.minimum(near, (places - places[chosen[-1]]).square().sum(-1))
    return torch.tensor(chosen)


def edges(landmarks: Tensor, places: Tensor, limit: float) -> Tensor:
    """Lengths of edges between landmarks ``[K, K]``, infinite where there is none.

    ‖x_i − x_j‖ · ½ (ρ̄/ρ_i + ρ̄/ρ_j), with ρ one more than the number of sampled places within half the limit.
    """
    apart = torch.cdist(landmarks, landmarks).double()
    crowd = 1.0 + (torch.cdist(landmarks, places) <= limit / 2).sum(-1).double()
    sparse = crowd.median() / crowd
    return torch.where(apart <= limit, apart * (sparse.unsqueeze(1) + sparse) / 2, torch.inf)


def steering(problem: Problem, ways: Ways, settings: MapConfig) -> Steering:
    """By headings where the layout has a velocity of a place on a plane, else by directions of features."""
    layout = problem.layout
    if settings.velocity:
        _require_columns(layout, settings.velocity)
    velocity = settings.velocity or (VELOCITY if VELOCITY in layout.names else "")
    if not velocity:
        return Directions(problem.model)
    headings = spread(settings.headings).to(problem.evidence.obs)
    return Headings(layout, ways.place, headings, heading_latents(problem, velocity, headings))


def spread(count: int) -> Tensor:
    """Unit vectors evenly spread over the circle, ``[count, 2]``."""
    angle = torch.arange(count) * (2 * math.pi / count)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def heading_latents(problem: Problem, velocity: str, headings: Tensor) -> Tensor:
    """The model's own prompt of the reward uᵀv for every heading u, ``[H, d]``."""
    evidence = problem.evidence
    speed = States(evidence.obs, problem.layout)[velocity][..., :2]  # [N, 2]
    return prompt.reward(problem.model, evidence.obs, headings @ speed.mT, problem.prompt)


def _require_columns(layout: Layout, name: str) -> None:
    """A field of at least two columns, which a place and a velocity have."""
    if name not in layout.names:
        raise DataError(f"waypoints need it: {unknown_name('observation field', name, layout.names)}")
    found = layout.find(name)
    if found is not None and found.size < 2:
        raise DataError(f"'{name}' has one column; waypoints need two or more, of a place or a velocity")
