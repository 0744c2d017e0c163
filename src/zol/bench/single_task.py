"""One task with its reward known: TD3 as a learner of the one loop, on fixed data or by practice.

The actor and critics are those of experts (zol.collect.experts). On a fixed set it shows how much the data
allow for one task, if nothing else has to be learned; in a world, what one behaviour costs.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zol.collect.experts import Expert
from zol.collect.rnd import RNDConfig
from zol.data import Batch, BatchSpec
from zol.rollout import random_returns, start_states
from zol.tasks import Task
from zol.worlds.base import World
from zol.worlds.episode import episode


class ActingPart(nn.Module):
    """What acts: the expert's actor and its normaliser, as the module that the loop knows."""

    def __init__(self, expert: Expert, world: World) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = world.layout.obs_dim, world.action_dim
        self.actor, self.normaliser, self._best = expert.actor, expert.normaliser, expert.best

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """The actor's own actions; there is one task, so no latent is looked at."""
        del z
        return self._best(obs)


class SingleTask:
    """TD3 for one task: everything that the loop asks of a learner."""

    checked = None  # not a model of many behaviours, so none of its health checks apply
    shown: ClassVar[Mapping[str, str]] = {"reward": "reward"}
    turning_points = ()

    def __init__(self, world: World, task: Task, config: RNDConfig, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.world, self.task, self.td3 = world, task, config
        self.expert = Expert(world.layout.obs_dim, world.action_dim, config, generator)
        self.model = ActingPart(self.expert, world)

    @property
    def settings(self) -> dict[str, Any]:
        """The task and the configuration."""
        return {"model.task": self.task.name} | {
            f"model.{name}": value for name, value in self.td3.model_dump(mode="json").items()
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What the run says about itself."""
        return {"model": "td3", "task": self.task.name, "settings": self.td3.model_dump(mode="json")}

    @property
    def batches(self) -> BatchSpec:
        """Single steps, with simulator states where rewards may need them."""
        return BatchSpec(physics=bool(self.world.layout.hidden))

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step of the critics, every second time one of the actor, on relabelled transitions."""
        reward = self.task(batch.arrived(self.world.layout)).float()
        self.expert.learn(batch.obs, batch.action, batch.next_obs, reward, batch.terminated, generator)
        return {"reward": reward.mean()}

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on."""
        for optimiser in (self.expert.actor_optimiser, self.expert.critic_optimiser):
            optimiser.scale_learning_rate(scale)

    def note_progress(self, share: float) -> None:
        """Nothing depends on it but the learning rates."""

    def state_dict(self) -> dict[str, Tensor]:
        """Networks, targets and optimisers."""
        return self.expert.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.expert.load_state_dict(state)

    @torch.no_grad()
    def returns(self, episodes: int, seed: int) -> dict[str, Tensor]:
        """Returns ``[E]`` of its task, from the start states of a seed."""
        generator = torch.Generator().manual_seed(seed)
        start = start_states(self.world, [self.task], episodes, generator)
        first, total = self.world.set_physics(start.flatten(0, 1)), torch.zeros(episodes, dtype=torch.float64)
        steps = episode(
            self.world,
            first,
            lambda states: self.expert.best(states.obs.float()),
            self.world.episode_length,
            over=self.task.succeeded if self.task.ends_at_success else None,
        )
        for step in steps:
            reward = self.task(step.states).double()
            total += reward if step.running is None else torch.where(step.running, reward, 0.0)
        return {self.task.name: total}

    def random(self, episodes: int, seed: int) -> dict[str, float]:
        """What uniformly random actions earn from the same start states."""
        generator = torch.Generator().manual_seed(seed)
        found = random_returns(self.world, [self.task], episodes=episodes, generator=generator)
        return {f"random/{self.task.name}": float(found.mean())}
