"""Waypoints: a far goal is reached along ways through places of the data (zol.adapt.ways).

A model that cannot be told a far goal may know how to move. The goal is the task's own; a task without one is
given the sampled state with the largest reward. Nothing but the named columns is known about the world.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.adapt.directions import goals_of
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.ways import MapConfig, Steering, Ways, has_a_place, steering, ways_to
from zol.adapt.zol import score
from zol.models.base import Model


@dataclass(frozen=True)
class Waypoints:
    """The policies of T tasks; called with observations ``[T, E, D]``."""

    model: Model
    ways: Ways
    steer: Steering

    @torch.no_grad()
    def latent(self, obs: Tensor) -> Tensor:
        """z ``[T, E, d]`` for the states ``[T, E, D]``."""
        return self.steer(obs, self.ways.waypoints(obs))

    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        return self.model.act(obs, self.latent(obs))


def through_waypoints(problem: Problem, settings: MapConfig) -> Behaviour:
    """A policy per task that follows the shortest way; the latent that is shown is that of its first step."""
    evidence = problem.evidence
    ways = ways_to(list(goals_of(problem)), problem, settings)
    policy = Waypoints(problem.model, ways, steering(problem, ways, settings))
    first = policy.latent(evidence.starts[:1].expand(len(evidence.tasks), 1, -1)).squeeze(1)  # [T, d]
    found = score(problem.model, evidence, first)
    told = dict(found.diagnostics) | {"connected": ways.connected.unsqueeze(0)}
    return Behaviour(replace(found, configs=(settings.model_dump(),), diagnostics=told), policy)


WAYPOINTS = Method(through_waypoints, MapConfig(), suits=has_a_place, single_latent=False)
