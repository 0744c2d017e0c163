"""Behaviour data of the paper's toy: short random walks that mostly know the donut's middle."""

import math

import torch

from zol.data import Dataset
from zol.worlds.donut import INNER, OUTER, Donut, polar


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
    positions = [world.set_physics(polar(radius, 2 * math.pi * angle)).obs]
    actions = []
    for _ in range(walk_length):
        actions.append(2 * torch.rand(walks, 2, generator=generator) - 1)
        positions.append(world.step(actions[-1]).obs)
    path = torch.stack(positions, 1)  # [walks, walk_length + 1, 2]
    last = torch.zeros(walks, walk_length, dtype=torch.bool)
    last[:, -1] = True
    return Dataset.from_arrays(
        obs=path[:, :-1].reshape(-1, 2).numpy(),
        action=torch.stack(actions, 1).reshape(-1, 2).numpy(),
        next_obs=path[:, 1:].reshape(-1, 2).numpy(),
        truncated=last.reshape(-1).numpy(),
        resets=world.reset(resets, generator).obs.numpy(),
        provenance={"world": "donut", "sigma": sigma, "walk_length": walk_length},
    )
