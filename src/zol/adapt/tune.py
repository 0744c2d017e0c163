r"""Tuning: minutes of offline TD3 for one task, from the model's own weights, on data with its reward.

A latent can only ask for a behaviour that the model holds. Tuning goes on training: a copy of F is the first
critic and a copy of π_z the first actor, for the one latent z of the task and the one direction v = E_ρ[B r]
of its reward,

    Q(s, a) = F(s, a, z)ᵀv                                         (in units of reward: zol.adapt.critic)
    y       = r + γ' min_P Q̄(s', clip(π̄_z(s') + clip(σ ε, ± c)))    γ' = 0 after a terminal step
    L_Q     = ½ Σ_P mean (Q(s, a) − y)²
    L_π     = − mean min_P Q(s, π_z(s)) / mean |Q|  +  α mean (π_z(s) − a)²          every second step

with slow copies Q̄ and π̄ (Fujimoto et al. 2018; α as in Fujimoto & Gu 2021). Nothing is sampled from a world.
It wants many more transitions than a prompt does: bring data. What acts is a new network, so that the method
belongs to those that change weights. Where the checkpoint has a learned world, the tuned policy acts only on
tasks on which it earns more than π_z there (zol.adapt.imagined_choice).
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from zol.adapt.critic import FrozenCritic
from zol.adapt.imagined_choice import chosen
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.zol import score
from zol.common.config import Config
from zol.common.errors import CheckpointError
from zol.common.progress import Ticker
from zol.evidence import Evidence
from zol.models.losses import pessimistic
from zol.models.network import Network
from zol.models.optimisation import Adam, frozen, move_towards

PESSIMISM = 0.5  # with two members their minimum


class TuneConfig(Config):
    """Settings of tuning; one default for all tasks."""

    steps: int = Field(default=3_000, ge=1)
    """updates of the critic per task; the actor has half as many"""
    batch_size: int = Field(default=256, ge=1)
    """transitions per update"""
    learning_rate: float = Field(default=3e-4, gt=0)
    """of both; it falls to zero on a straight line"""
    target_rate: float = Field(default=0.01, gt=0, le=1)
    """τ: how fast the slow copies follow"""
    noise: float = Field(default=0.2, ge=0)
    """σ of the actions in targets"""
    noise_clip: float = Field(default=0.3, ge=0)
    """c, where that noise is cut"""
    bc: float = Field(default=0.0, ge=0)
    """α: how strongly actions are held to the data's"""
    imagined: bool = True
    """act so only on tasks where the learned world says that it earns more than π_z, if there is one"""


@dataclass(frozen=True)
class Labelled:
    """A batch of transitions with the rewards of one task."""

    obs: Tensor  # s, [N, D]
    action: Tensor  # a, [N, A]
    next_obs: Tensor  # s', [N, D]
    reward: Tensor  # r(s'), [N]
    discount: Tensor  # γ', [N]


class Tuning:
    """The learning state of one task: critic, actor, their slow copies and optimisers."""

    def __init__(self, model: Network, evidence: Evidence, z: Tensor, config: TuneConfig) -> None:
        """``evidence`` has the rewards of one task, ``z`` ``[d]`` is its latent."""
        self.config, self.z = config, z
        self.model = deepcopy(model).requires_grad_(False)
        self.slow = deepcopy(self.model)
        found = FrozenCritic.of(model, evidence)
        self.critic, self.slow_critic = replace(found, model=self.model), replace(found, model=self.slow)
        self.critic_optimiser, self.actor_optimiser = (
            Adam(part.requires_grad_(True).parameters(), config.learning_rate)
            for part in (self.model.forward_map, self.model.actor)
        )
        self.updates = 0

    def act(self, obs: Tensor) -> Tensor:
        """π_z(s), ``[N, D] → [N, A]``."""
        return self.model.act(obs, self.z)

    def value(self, critic: FrozenCritic, obs: Tensor, action: Tensor) -> Tensor:
        """Q(s, a) of every member, ``[P, N]``."""
        states = obs.unsqueeze(0)
        here = critic.predicted_reward(states)
        return critic.value(states, self.z.expand(1, 1, -1), action.unsqueeze(0), here).squeeze(1)

    @torch.no_grad()
    def target(self, batch: Labelled, generator: torch.Generator) -> Tensor:
        """y, ``[N]``."""
        c, mean = self.config, self.slow.act(batch.next_obs, self.z)
        noise = c.noise * torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        action = (mean + noise.clamp(-c.noise_clip, c.noise_clip)).clamp(-1, 1)
        following = pessimistic(self.value(self.slow_critic, batch.next_obs, action), PESSIMISM)
        return batch.reward + batch.discount * following

    @torch.enable_grad()
    def update(self, batch: Labelled, generator: torch.Generator) -> None:
        """One step of the critic, every second time one of the actor; then the slow copies follow."""
        error = self.value(self.critic, batch.obs, batch.action) - self.target(batch, generator)
        (0.5 * error.square().mean(-1).sum()).backward()
        self.critic_optimiser.step_and_clear()
        if self.updates % 2 == 0:
            with frozen(self.model.forward_map):
                self.actor_loss(batch).backward()
            self.actor_optimiser.step_and_clear()
        self.updates += 1
        move_towards(self.slow, self.model, self.config.target_rate)

    def actor_loss(self, batch: Labelled) -> Tensor:
        """L_π."""
        action = self.act(batch.obs)
        values = self.value(self.critic, batch.obs, action)
        size = values.detach().abs().mean().clamp_min(1e-6)
        cloning = (action - batch.action).square().mean()
        return -pessimistic(values, PESSIMISM).mean() / size + self.config.bc * cloning

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on."""
        for optimiser in (self.critic_optimiser, self.actor_optimiser):
            optimiser.scale_learning_rate(scale)


@dataclass(frozen=True)
class Tuned:
    """The policies of T tasks, a network each; called with observations ``[T, E, D]`` like any other."""

    policies: tuple[Tuning, ...]

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        return torch.stack([policy.act(own) for policy, own in zip(self.policies, obs, strict=True)])


def tuned(problem: Problem, config: TuneConfig) -> Behaviour:
    """TD3 per task on the sample's transitions."""
    sample = problem.value_problem().transitions
    if sample is None:
        raise CheckpointError(
            "tuning learns from whole transitions, and the sample of this checkpoint holds next states only: "
            "bring data, --data FOLDER or zol.load(path, data=dataset)"
        )
    policies = tuple(
        _tuned(problem, sample.only(task), z, config)
        for task, z in zip(sample.tasks, problem.model.project(problem.start), strict=True)
    )
    found = score(problem.model, problem.evidence, problem.start)
    policy = Tuned(policies)
    return chosen(problem, found, policy) if config.imagined else Behaviour(found, policy)


def _tuned(problem: Problem, sample: Evidence, z: Tensor, config: TuneConfig) -> Tuning:
    """TD3 for one task, the only one of ``sample``, from its latent ``[d]`` on."""
    model, (task,) = problem.model, sample.tasks
    if not isinstance(model, Network) or model.config.actor is None:
        raise CheckpointError("tuning trains F and an actor further, and this model does not consist of them")
    before, action, terminated = sample.before, sample.action, sample.terminated
    assert before is not None
    assert action is not None
    assert terminated is not None
    generator = problem.generator(f"tune {task}")
    tuning = Tuning(model, sample, z, config)
    discount = model.discount * (~terminated).to(sample.rewards.dtype)
    bar = Ticker(problem.progress, f"tuning {task}", config.steps)
    for step in range(config.steps):
        tuning.scale_learning_rates(1.0 - step / config.steps)
        rows = torch.randint(len(sample.obs), (config.batch_size,), generator=generator)
        batch = Labelled(
            before[rows],
            action[rows],
            sample.obs[rows],
            sample.rewards[0, rows],
            discount[rows],
        )
        tuning.update(batch, generator)
        bar.advance()
    bar.finish()
    tuning.model.requires_grad_(False)
    return tuning


TUNE = Method(tuned, TuneConfig(), uses="weights", samples=200_000, single_latent=False)
