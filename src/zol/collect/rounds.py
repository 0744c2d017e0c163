"""A round: one episode in each of n environments, kept as it is played.

An episode that ends in a terminal state is shorter than the round; its environment adds nothing from then on.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.errors import DataError
from zol.data.writer import episode_rows
from zol.fields import States
from zol.models.network import Network
from zol.worlds.base import World
from zol.worlds.episode import Policy, Step, episode, random_policy


class Round:
    """What n environments do from their first states on."""

    def __init__(self, world: World, first: States, length: int) -> None:
        """``first`` are the states that the world is in now; episodes are cut after ``length`` steps."""
        n, physics = len(first.obs), world.physics
        self.world, self.states, self.n, self.length = world, first, n, length
        self.obs = torch.zeros(n, length + 1, world.layout.obs_dim)
        self.action = torch.zeros(n, length, world.action_dim)
        self.physics: NDArray[np.float64] = np.zeros((n, length + 1, physics.shape[1]))
        self.obs[:, 0], self.physics[:, 0] = first.obs, physics.numpy()
        self.lengths = torch.zeros(n, dtype=torch.int64)
        self.terminated = torch.zeros(n, dtype=torch.bool)  # how the episodes ended that are over
        self.steps = 0  # over all environments

    def play(self, policy: Policy) -> Iterator[int]:
        """Let a policy act until all episodes are over; yields the number of every step that was taken."""
        for t, step in enumerate(episode(self.world, self.states, policy, self.length)):
            self.add(t, step)
            yield t

    def add(self, t: int, step: Step) -> None:
        """Keep the actions of step ``t`` and what followed in the environments that were running."""
        self.states = step.states
        self.action[:, t], self.obs[:, t + 1] = step.states.need_action(), step.states.obs
        self.physics[:, t + 1] = self.world.physics.numpy()
        self.lengths += 1 if step.running is None else step.running
        self.steps += self.n if step.running is None else int(step.running.sum())
        if step.states.terminated is not None:
            self.terminated |= step.states.terminated

    def episodes(self, **columns: NDArray[np.generic]) -> list[dict[str, NDArray[np.generic]]]:
        """Rows to write, each episode as long as it was, with further ``columns`` of steps ``[n, L, …]``."""
        return [
            episode_rows(
                self.obs[i, : length + 1].numpy(),
                self.action[i, :length].numpy(),
                terminated=bool(self.terminated[i]),
                physics=self.physics[i, : length + 1],
                **{name: column[i, :length] for name, column in columns.items()},
            )
            for i, length in enumerate(self.lengths.tolist())
            if length  # an episode that began where another one was terminal has no steps
        ]


class LatentPolicy:
    """π_z with noise in some environments, where z changes every so many steps."""

    def __init__(
        self, model: Network, latents: Tensor, steps: int, noise: tuple[float, float], chance: torch.Generator
    ) -> None:
        """``latents`` ``[n, turns, d]`` act for ``steps`` steps each; ``noise`` holds the standard deviations
        in the first and in the last environment."""
        self.model, self.latents, self.steps, self.chance = model, latents, steps, chance
        self.noise = noise_levels(noise, len(latents))
        self.taken = 0

    @torch.no_grad()
    def __call__(self, states: States) -> Tensor:
        """Actions of the first n environments."""
        weights = next(self.model.parameters())
        z = self.latents[:, self.taken // self.steps]
        self.taken += 1
        obs = states.obs[: len(z)]
        mean = self.model.act(obs.to(weights), z.to(weights)).cpu().float()
        return (mean + self.noise * torch.randn(mean.shape, generator=self.chance)).clamp(-1, 1)


def require_fit(world: World, model: Network) -> None:
    """Refuse a world that the model was not made for."""
    if (world.layout.obs_dim, world.action_dim) != (model.obs_dim, model.action_dim):
        raise DataError(
            f"{world.name} has {world.layout.obs_dim} observation and {world.action_dim} action columns, the "
            f"model {model.obs_dim} and {model.action_dim}: it can act in the world of its data"
        )


def turns(length: int, steps: int) -> int:
    """How many latents act in an episode, if each acts for so many steps."""
    return -(-length // steps)


def noise_levels(noise: tuple[float, float], n: int) -> Tensor:
    """Standard deviations ``[n, 1]``, evenly from the first number to the second."""
    return torch.linspace(*noise, n).unsqueeze(-1)


def acting(n: int, random_share: float) -> int:
    """How many of n environments follow a policy if this share of them acts at random."""
    return n - round(random_share * n)


def partly_random(policy: Policy, world: World, n: int, generator: torch.Generator) -> Policy:
    """The policy in the first n environments, uniformly random actions in the others."""
    chance = random_policy(world, generator)

    def act(states: States) -> Tensor:
        if len(states.obs) == n:
            return policy(states)
        return torch.cat([policy(states), chance(states)[n:]]) if n else chance(states)

    return act
