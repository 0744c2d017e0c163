"""Experts of single tasks, to be watched: the explorer's actor and critics, paid by a known reward.

    Q target   r(s, a, s') + γ · min_i Q̄_i(s', clip(π(s') + ε)),     actor   max_π Q_1(s, π(s))

Demonstrations are states that good policies visit. One task at a time is easy where all of them at once are
hard, so an expert takes minutes on one core. What it learned from is forgotten; its networks are one file.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.collect.rnd import RNDAgent, RNDConfig
from zol.common.config import Config
from zol.common.progress import Ticker
from zol.common.tensors import read_metadata, read_tensors, write_tensors
from zol.common.threads import one_torch_thread
from zol.fields import States
from zol.tasks import Task
from zol.worlds.base import World
from zol.worlds.episode import episode, random_policy


class ExpertConfig(Config):
    """How long and how an expert is trained."""

    expert_steps: int = Field(default=150_000, ge=1)
    """environment steps per expert"""
    envs: int = Field(default=20, ge=1)
    """environments stepped together"""
    episode_length: int = Field(default=500, ge=1)
    """steps of a training episode, at most the world's"""
    hidden: int = Field(default=256, ge=1)
    """width of every network"""
    batch_size: int = Field(default=256, ge=1)
    """transitions per update"""
    steps_per_update: int = Field(default=5, ge=1)
    """environment steps between updates"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """of actor and critics"""
    discount: float = Field(default=0.98, gt=0, lt=1)
    """γ"""
    random_steps: int = Field(default=5_000, ge=0)
    """environment steps with uniform actions at the beginning"""

    def agent(self) -> RNDConfig:
        """The same in the words of the explorer, whose networks an expert has."""
        return RNDConfig(
            hidden=self.hidden,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            discount=self.discount,
        )


class Expert(RNDAgent):
    """Actor and critics that a task pays instead of novelty."""

    def learn(
        self,
        obs: Tensor,
        action: Tensor,
        next_obs: Tensor,
        reward: Tensor,
        terminated: Tensor,
        generator: torch.Generator,
    ) -> None:
        """One update on transitions ``[N, …]`` with rewards ``[N]``."""
        with torch.no_grad():
            self.normaliser.update(next_obs)
            s, s2 = self._normalise(obs), self._normalise(next_obs)
        self._update_critic(s, action, s2, reward, self.config.discount * ~terminated, generator)
        if self.normaliser.num_batches_tracked % 2 == 0:
            self._update_actor(s)
            self._move_target()

    @torch.no_grad()
    def best(self, obs: Tensor) -> Tensor:
        """The actor's own actions ``[n, A]``, without noise."""
        return self._policy(self._normalise(obs))


class _Memory:
    """All transitions of one training, in memory."""

    def __init__(self, rows: int, obs_dim: int, action_dim: int) -> None:
        self.rows = 0
        self.obs, self.next_obs = torch.zeros(2, rows, obs_dim)
        self.action = torch.zeros(rows, action_dim)
        self.reward = torch.zeros(rows)
        self.terminated = torch.zeros(rows, dtype=torch.bool)

    def add(self, obs: Tensor, reached: States, reward: Tensor, mine: Callable[[Tensor], Tensor]) -> None:
        ended = (
            reached.terminated if reached.terminated is not None else torch.zeros(len(obs), dtype=torch.bool)
        )
        columns = (self.obs, self.action, self.next_obs, self.reward, self.terminated)
        values = (obs, reached.need_action(), reached.obs, reward, ended)
        kept = [mine(value) for value in values]
        room = min(len(kept[0]), len(self.obs) - self.rows)
        for column, value in zip(columns, kept, strict=True):
            column[self.rows : self.rows + room] = value[:room]
        self.rows += room

    def sample(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        at = torch.randint(self.rows, (size,), generator=generator)
        return self.obs[at], self.action[at], self.next_obs[at], self.reward[at], self.terminated[at]


def train_expert(
    world: World, task: Task, config: ExpertConfig, seed: int = 0, progress: Progress | None = None
) -> Expert:
    """An expert of one task; its episodes begin where the world's (or the task's own) begin."""
    generator = torch.Generator().manual_seed(seed)
    expert = Expert(world.layout.obs_dim, world.action_dim, config.agent(), generator)
    memory = _Memory(config.expert_steps, world.layout.obs_dim, world.action_dim)
    chance, length = random_policy(world, generator), min(config.episode_length, world.episode_length)
    bar = Ticker(progress, f"expert of {task.name}", config.expert_steps)

    def policy(states: States) -> Tensor:
        if memory.rows < config.random_steps:
            return chance(states)
        return expert.act(states.obs.float(), generator)

    with one_torch_thread():
        while memory.rows < config.expert_steps:
            owed, earned, steps = 0.0, 0.0, 0
            states = begin(world, task, config.envs, generator)
            expert.begin()
            for step in episode(world, states, policy, length):
                before, reward = memory.rows, task(step.states).float()
                memory.add(states.obs.float(), step.states, reward, step.those)
                states = step.states
                earned, steps = earned + float(step.those(reward).sum()), steps + memory.rows - before
                if before >= config.random_steps:
                    owed += (memory.rows - before) / config.steps_per_update
                while owed >= 1:
                    expert.learn(*memory.sample(config.batch_size, generator), generator)
                    owed -= 1
            bar.reach(memory.rows, f"reward per step {earned / max(1, steps):.3f}")
    return expert


def begin(world: World, task: Task, n: int, generator: torch.Generator) -> States:
    """The first states of ``n`` episodes of a task."""
    if task.starts is None:
        return world.reset(n, generator)
    return world.set_physics(task.starts(n, generator))


def save_expert(expert: Expert, path: Path, config: ExpertConfig, seed: int = 0) -> None:
    """The networks of an expert as one file."""
    write_tensors(path, expert.state_dict(), {"config": config.model_dump_json(), "seed": str(seed)})


def load_expert(world: World, path: Path, config: ExpertConfig, seed: int = 0) -> Expert | None:
    """The expert in a file that was trained with this configuration and seed; None if there is none."""
    if not path.exists():
        return None
    header = read_metadata(path, ("config", "seed"))
    if header["config"] != config.model_dump_json() or header["seed"] != str(seed):
        return None
    expert = Expert(world.layout.obs_dim, world.action_dim, config.agent(), torch.Generator())
    expert.load_state_dict(read_tensors(path))
    return expert
