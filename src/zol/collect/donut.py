"""Behaviour data of the paper's toy: short random walks that mostly know the donut's middle."""

import math

import torch

from zol.data import Dataset
from zol.worlds.donut import INNER, OUTER, Donut, polar
from zol.worlds.episode import episode, random_policy


def collect(
    transitions: int,
    generator: torch.Generator,
    *,
    sigma: float = 0.6,
    walk_length: int = 10,
    resets: int = 1024,
) -> Dataset:
    """Random walks with uniform actions, begun with density ∝ exp(−‖s‖²/2σ²) on the annulus."""
    world = Donut()
    walks = -(-transitions // walk_length)
    # Inverse of the radial distribution function of exp(−r²/2σ²)·r on [INNER, OUTER].
    inner, outer = (math.exp(-(r**2) / (2 * sigma**2)) for r in (INNER, OUTER))
    u, angle = torch.rand(2, walks, generator=generator)
    radius = (-2 * sigma**2 * (inner + u * (outer - inner)).log()).sqrt().clamp(INNER, OUTER)
    first = world.set_physics(polar(radius, 2 * math.pi * angle))
    played = [s.states for s in episode(world, first, random_policy(world, generator), walk_length)]
    path = torch.stack([first.obs, *(states.obs for states in played)], 1)  # [walks, walk_length + 1, 2]
    actions = torch.stack([states.need_action() for states in played], 1)  # [walks, walk_length, 2]
    last = torch.zeros(walks, walk_length, dtype=torch.bool)
    last[:, -1] = True
    return Dataset.from_arrays(
        obs=path[:, :-1].reshape(-1, 2).numpy(),
        action=actions.reshape(-1, 2).numpy(),
        next_obs=path[:, 1:].reshape(-1, 2).numpy(),
        truncated=last.reshape(-1).numpy(),
        resets=world.reset(resets, generator).obs.numpy(),
        provenance={"world": "donut", "sigma": sigma, "walk_length": walk_length},
    )
