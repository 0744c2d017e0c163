"""Demonstrations on the donut that need no training: walking round it, one way or the other."""

from pathlib import Path

import torch
from torch import Tensor

from zol.collect.demonstrations import Show, record
from zol.data import Dataset
from zol.worlds.donut import Donut

SMALL_ONLINE: dict[str, int] = {
    "envs": 4,
    "stretch": 5,
    "steps_per_update": 4,
    "episode_length": 20,
    "latent_steps": 10,
    "random_steps": 64,
    "prioritise_every": 7,
}


def circling(obs: Tensor, radius: float = 0.9, direction: float = 1.0) -> Tensor:
    """Actions ``[n, 2]`` that walk round the donut at this radius."""
    r = obs.norm(dim=-1, keepdim=True)
    along = direction * torch.stack([-obs[..., 1], obs[..., 0]], -1) / r
    return (0.8 * along + 5 * (radius - r) * obs / r).clamp(-1, 1)


def circles(folder: Path, episodes: int = 3, steps: int = 30) -> Dataset:
    """Motions of two behaviours, states only."""
    shows = [Show("left", circling), Show("right", lambda obs: circling(obs, 1.2, -1.0))]
    return record(Donut(), shows, folder, episodes=episodes, steps=steps, skip=5)
