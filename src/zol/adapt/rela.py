r"""ReLA: residual latent adaptation, an actor–critic over one latent (Sikchi et al. 2025, arXiv 2504.07896).

The frozen model values the part r̂ of the reward that its features see (zol.adapt.critic). A small twin
critic learns the value of the rest, from steps of the environment kept in a replay buffer:

    Q(s, a) = F(s, a, z)ᵀv + R_j(s, a),   j = 1, 2
    y       = r − r̂(s') + γ (1 − terminated) min_j R̄_j(s', π_z(s'))            R̄: slow targets
    R_j     ← Adam on ½ (R_j(s, a) − y)²
    z       ← Π( Adam on  E_s[ F(s, a, z̄)ᵀv + min_j R_j(s, a) ] ),  a = π_z(s)  z̄: z held constant

The gradient of z passes through the actor into both terms; all pretrained networks are frozen. An episode
that runs out of time does not end the world: its last state is bootstrapped like any other. The R_j begin at
zero, so that the first steps follow the frozen value alone. Tasks are rows: the 2T critics of T tasks are
one ensemble, and neither losses nor Adam mix them.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from itertools import pairwise

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor, nn

from zol.adapt.critic import FrozenCritic
from zol.adapt.environments import TaskEnvironments, online_result
from zol.adapt.problem import Method, Problem
from zol.adapt.replay import Replay, Steps, offline_steps
from zol.adapt.result import Adapted
from zol.common.config import Config, ConfigError
from zol.common.progress import Ticker
from zol.data import Dataset
from zol.evidence import Evidence
from zol.models.base import Model
from zol.models.layers import initialise, linear
from zol.models.losses import pessimistic
from zol.models.optimisation import Adam, frozen, move_towards
from zol.tasks import Task
from zol.worlds.base import World


class ReLAConfig(Config):
    """Settings of ReLA; the defaults are those in circulation (docs/adaptation.md)."""

    environment_steps: int = Field(default=20_000, gt=0)
    """budget per task"""
    environments: int = Field(default=1, gt=0)
    """environments per task that run side by side"""
    updates_per_step: float = Field(default=1.0, gt=0)
    """updates of critic and latent per environment step of a task"""
    warmup: int = Field(default=5_000, ge=0)
    """environment steps before the first update"""
    batch_size: int = Field(default=1024, ge=2)
    """transitions per update and task; half of them offline, if data are given"""
    buffer: int = Field(default=200_000, gt=0)
    """transitions that the replay buffer of a task holds"""
    learning_rate: float = Field(default=1e-4, gt=0)
    """of Adam on z"""
    critic_learning_rate: float = Field(default=1e-4, gt=0)
    """of Adam on the residual critics"""
    hidden: int = Field(default=64, gt=0)
    """width of the two hidden layers of a residual critic"""
    target_rate: float = Field(default=0.005, gt=0, le=1)
    """τ: how fast the targets follow"""
    action_noise: float = Field(default=0.2, ge=0)
    """standard deviation of the noise on actions while adapting"""


class ResidualCritics(nn.Module):
    """R_j(s, a) of T tasks: twin MLPs with two ReLU layers, all trained side by side."""

    mean: Tensor
    spread: Tensor

    def __init__(self, obs: Tensor, action_dim: int, tasks: int, hidden: int, generator: torch.Generator):
        """``obs`` ``[N, D]`` is a sample by which observations are normalised."""
        super().__init__()
        self.tasks = tasks
        self.register_buffer("mean", obs.mean(0))
        self.register_buffer("spread", obs.std(0) + 1e-2)
        sizes = (obs.shape[-1] + action_dim, hidden, hidden, 1)
        first, second, last = (linear(a, b, 2 * tasks) for a, b in pairwise(sizes))
        self.net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
        initialise(self, generator)
        nn.init.zeros_(last.get_parameter("weight"))
        self.to(obs.dtype)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """``[T, N, D], [T, N, A] → [2, T, N]``."""
        x = torch.cat([(obs - self.mean) / self.spread, action], dim=-1)
        out: Tensor = self.net(x.repeat(2, 1, 1))
        return out.reshape(2, self.tasks, -1)


class ReLA:
    """The learning state of T tasks: latents, residual critics and their targets."""

    def __init__(
        self,
        frozen_critic: FrozenCritic,
        start: Tensor,
        obs: Tensor,
        config: ReLAConfig,
        generator: torch.Generator,
    ) -> None:
        self.model, self.base, self.config = frozen_critic.model, frozen_critic, config
        self.residual = ResidualCritics(obs, self.model.action_dim, len(start), config.hidden, generator)
        self.target = deepcopy(self.residual).requires_grad_(False)
        self.z = nn.Parameter(self.model.project(start).detach().clone())
        self._critic_optimiser = Adam(self.residual.parameters(), config.critic_learning_rate)
        self._latent_optimiser = Adam([self.z], config.learning_rate)

    def act(self, obs: Tensor) -> Tensor:
        """π_z(s) ``[T, N, A]`` for states ``[T, N, D]``, differentiable in z."""
        return self.model.act(obs, self.z.unsqueeze(1))

    def target_values(self, batch: Steps) -> Tensor:
        """y ``[T, N]``: the unseen part of the reward, and what follows unless the world ended."""
        with torch.no_grad():
            following = pessimistic(self.target(batch.next_obs, self.act(batch.next_obs)), 0.5)
            return batch.unseen + self.model.discount * (~batch.terminated) * following

    def value(self, obs: Tensor) -> Tensor:
        """Q(s, π_z(s)) ``[T, N]``, differentiable in z through the action alone."""
        action = self.act(obs)
        base = self.base.value(obs, self.z.detach().unsqueeze(1), action).mean(0)
        return base + pessimistic(self.residual(obs, action), 0.5)

    @torch.enable_grad()
    def update(self, batch: Steps) -> Tensor:
        """One step of the critics, one of the latents; the mean value ``[T]`` before it."""
        error = self.residual(batch.obs, batch.action) - self.target_values(batch)
        (0.5 * error.square().mean(-1).sum()).backward()
        self._critic_optimiser.step_and_clear()
        with frozen(self.residual):
            value = self.value(batch.obs).mean(-1)
            (self.z.grad,) = torch.autograd.grad(-value.sum(), self.z)  # of z alone, never of the model
        self._latent_optimiser.step_and_clear()
        with torch.no_grad():
            self.z.copy_(self.model.project(self.z))
        move_towards(self.target, self.residual, self.config.target_rate)
        return value.detach()


def rela_search(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    world: World,
    tasks: Sequence[Task] | Mapping[str, Task],
    config: ReLAConfig | None = None,
    *,
    generator: torch.Generator,
    data: Dataset | None = None,
    progress: Progress | None = None,
) -> Adapted:
    """Adapt latents ``[T, d]`` by acting in the world; ``data`` fill half of every batch."""
    c = config or ReLAConfig()
    rounds, left_over = divmod(c.environment_steps, c.environments)
    if left_over or c.warmup >= c.environment_steps:
        raise ConfigError(
            f"{c.environment_steps} environment steps with a warm-up of {c.warmup} on {c.environments} "
            "environments: the budget must be a multiple of the environments, and larger than the warm-up"
        )
    environments = TaskEnvironments(world, tasks, evidence, generator)
    base = FrozenCritic.of(model, evidence)
    learner = ReLA(base, start, evidence.obs.to(start.dtype), c, generator)
    replay = Replay(min(c.buffer, c.environment_steps))
    online = c.batch_size - (c.batch_size // 2 if data is not None else 0)
    bar = Ticker(progress, "ReLA", rounds)
    rewards, values, due = [], [], 0.0
    with frozen(model) if isinstance(model, nn.Module) else nullcontext():
        for t in range(rounds):
            if t % world.episode_length == 0:
                begin = environments.draw(len(start) * c.environments).reshape(len(start), c.environments, -1)
                obs = environments.observed(environments.begin(begin), start)
            with torch.no_grad():
                mean = learner.act(obs)
                noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
                action = (mean + c.action_noise * noise).clamp(-1, 1)
            reached = environments.step(action)
            next_obs, reward = environments.observed(reached, start), environments.rewards([reached])[0]
            unseen = reward.to(start.dtype) - base.predicted_reward(next_obs)
            # The last step of an episode leads to its true next state, and no world here terminates.
            replay.add(Steps(obs, action, next_obs, unseen, torch.zeros_like(reward, dtype=torch.bool)))
            obs = next_obs
            rewards.append(reward.mean(-1))
            due += c.updates_per_step * c.environments if environments.steps > c.warmup else 0.0
            for _ in range(int(due)):
                batch = replay.sample(online, generator)
                if data is not None:
                    rest = offline_steps(data, environments, base, start, c.batch_size // 2, generator)
                    batch = batch.beside(rest)
                values.append(learner.update(batch))
            due -= int(due)
            bar.advance()
    trace = {"reward": torch.stack(rewards), "value": torch.stack(values)}
    return online_result("rela", model, evidence, start, learner.z.detach(), c, environments.steps, trace)


def practise(problem: Problem, config: ReLAConfig) -> Adapted:
    """ReLA from plain FB's latents."""
    return rela_search(
        problem.model,
        problem.evidence,
        problem.start,
        problem.environment(),
        problem.tasks,
        config,
        generator=problem.generator("rela"),
        progress=problem.progress,
    )


# ReLA as circulated makes one update per environment step, 20 minutes per task on a CPU. This is a twentieth
# of the updates at twenty times the rates.
REDUCED = ReLAConfig(updates_per_step=0.05, batch_size=256, learning_rate=2e-3, critic_learning_rate=2e-3)
RELA = Method(practise, REDUCED, uses="environment")
