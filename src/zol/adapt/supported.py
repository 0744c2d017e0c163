r"""Acting within the data's support: in every state, the best action that the data's behaviour would take.

π_z was trained to maximise F(s, a, z)ᵀz, and where the data are thin F errs in favour of actions that nobody
has tried there. A flow that is fitted to the sample's transitions (zol.models.flow) draws actions of the
behaviour β(a|s) instead, and the model's own value chooses among k of them:

    π(s) = argmax_{a_j = flow(s, ε_j)} F(s, a_j, z)ᵀv,     v = E_ρ[B r],     j = 1 … k

The flow is one for all tasks, and all pretrained networks stay as they are. The noise ε_1 … ε_k is drawn once
and is the same in every state: the policy is a function of the state, and its results do not depend on how
many environments run beside each other. k = 1 is the behaviour, k → ∞ the greedy policy on its support.

Greedy steps on a value that is only roughly right can also be worse than π_z. On which tasks they are better
is asked of the learned world where there is one (zol.adapt.imagined_choice).
"""

from dataclasses import dataclass

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.adapt.critic import FrozenCritic
from zol.adapt.imagined_choice import TWO_ACCOUNTS, chosen
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.zol import score
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.common.progress import Ticker
from zol.models.flow import ActionFlow, flow_matching_loss
from zol.models.losses import pessimistic
from zol.models.optimisation import Adam


class FlowConfig(Config):
    """How a flow is fitted to the sample's transitions, followed, and chosen from."""

    hidden: int = Field(default=128, ge=1)
    """width of the vector field"""
    layers: int = Field(default=2, ge=1)
    """its hidden layers"""
    steps: int = Field(default=2_000, ge=1)
    """gradient steps"""
    batch_size: int = Field(default=256, ge=1)
    """transitions per step"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """of Adam; it falls to zero on a straight line"""
    flow_steps: int = Field(default=5, ge=1)
    """Euler steps from noise to an action"""
    samples: int = Field(default=16, ge=1)
    """k: behaviour samples that the model's value compares"""
    pessimism: float = Field(default=0.5, ge=0)
    """of that value; 0.5 with two members is their minimum, as in the training of π_z"""
    imagined: bool = True
    """act so only on tasks where learned world and ratio agree that π_z earns less, if there is a world"""


@dataclass(frozen=True)
class Transitions:
    """What behaviour is learned from: states, the actions that were taken there, and where they led."""

    obs: Tensor  # [N, D]
    action: Tensor  # [N, A]
    next_obs: Tensor  # [N, D]

    @staticmethod
    def of(problem: Problem) -> "Transitions":
        """Those of the problem's sample; a sample of states alone is refused."""
        sample = problem.value_problem().transitions
        if sample is None or sample.before is None or sample.action is None:
            raise CheckpointError(
                "behaviour is learned from whole transitions, and the sample of this checkpoint holds next "
                "states only: bring data, zol.load(path, data=dataset), or train a checkpoint anew"
            )
        return Transitions(sample.before, sample.action, sample.obs)


def fit_flow(
    data: Transitions,
    config: FlowConfig,
    generator: torch.Generator,
    *,
    weights: Tensor | None = None,
    progress: Progress | None = None,
    what: str = "behaviour flow",
) -> ActionFlow:
    """A flow to the actions of the data, each counted with its weight ``[N]``.

    Batches are drawn by weight. That has the same minimiser as weighting the loss, and no step is spent on
    transitions that do not count.
    """
    flow = ActionFlow(
        data.obs, data.action.shape[-1], hidden=config.hidden, layers=config.layers, generator=generator
    )
    optimiser = Adam(flow.parameters(), config.learning_rate)
    chances = torch.ones(len(data.obs)) if weights is None else weights.clamp_min(0.0).float()
    if not bool(chances.sum() > 0):
        raise DataError("all weights are zero or negative: no transition of the sample says what to do")
    bar = Ticker(progress, what, config.steps)
    with torch.enable_grad():
        for step in range(config.steps):
            optimiser.scale_learning_rate(1.0 - step / config.steps)
            rows = torch.multinomial(chances, config.batch_size, replacement=True, generator=generator)
            flow_matching_loss(flow.at(data.obs[rows]), data.action[rows], generator).backward()
            optimiser.step_and_clear()
            bar.advance()
    return flow.eval().requires_grad_(False)


@dataclass(frozen=True)
class Supported:
    """The policies of T tasks; called with observations ``[T, E, D]`` like any other."""

    critic: FrozenCritic
    z: Tensor  # [T, d]
    flow: ActionFlow
    noise: Tensor  # [k, A]
    config: FlowConfig

    def weigh(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Behaviour samples ``[T, E, k, A]`` and their values ``[T, E, k]``."""
        noise = self.noise.expand(*obs.shape[:-1], *self.noise.shape)
        action = self.flow(obs.unsqueeze(-2), noise, self.config.flow_steps)
        return action, self.value(obs.unsqueeze(-2), action)

    def value(self, obs: Tensor, action: Tensor) -> Tensor:
        """The model's own value ``[T, E, k]`` of actions ``[T, E, k, A]`` in states ``[T, E, 1, D]``."""
        every = self.critic.value(obs, self.z[:, None, None], action)
        return pessimistic(every, self.config.pessimism)

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        action, value = self.weigh(obs)
        return action.take_along_dim(value.argmax(-1)[..., None, None], dim=-2).squeeze(-2)


def supported_policy(problem: Problem, config: FlowConfig) -> Supported:
    """The best of k behaviour samples by the value of plain FB's latents."""
    generator = problem.generator("behaviour flow")
    flow = fit_flow(Transitions.of(problem), config, generator, progress=problem.progress)
    noise = torch.randn(config.samples, problem.model.action_dim, generator=generator)
    critic = FrozenCritic.of(problem.model, problem.evidence)
    return Supported(critic, problem.start, flow, noise, config)


def in_support(problem: Problem, config: FlowConfig) -> Behaviour:
    """Plain FB's latents, acted out within the data's support."""
    found = score(problem.model, problem.evidence, problem.start)
    policy = supported_policy(problem, config)
    return chosen(problem, found, policy) if config.imagined else Behaviour(found, policy)


SUPPORTED = Method(in_support, FlowConfig(), single_latent=False, revision=2, correction=TWO_ACCOUNTS)
