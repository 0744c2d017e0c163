r"""Guided acting within the data's support: a behaviour flow that is bent towards a latent's own ratio.

Diffusion-DICE (Mao et al., 2024) draws actions of π(a|s) ∝ w(s, a) β(a|s) from a generative model of the
behaviour β whose steps are guided by the ratio w, and then selects the one of highest value. It learns Q, w
and a guidance network per task. Here the family of latents brings them along: the ratio of the best policy
that stays near β in each state is the exponential of the advantage, which F holds for every z,

    log w(s, a) = Q(s, a) / (τ σ(s)) + const,      Q(s, a) = F(s, a, z)ᵀv,      σ the spread of Q over β(a|s)

so that one flow serves all tasks and nothing is learned per task. On the flow's path x_t = (1 − t) ε + t a
velocity and score are tied, v = (x + (1 − t) ∇log p_t(x)) / t, and p_t^π ∝ p_t · E[w|x_t].
Hence the velocity whose samples have the density w β is

    v_w(x, t) = v(x, t) + (1 − t)/t · ∇_x log E[w(s, a) | x_t = x]

Diffusion-DICE learns the last term. Here a step of expansion around â = E[a|x_t] = x + (1 − t) v(x, t) gives
it, with ∂â/∂x = t/(1 − t)² Cov[a|x_t] and the covariance that a Gaussian of the variances S of β(a|s) has:

    v_w(x, t) ≈ v(x, t) + C_t/(1 − t) · ∇_a log w(s, â),      C_t = S (1 − t)² / ((1 − t)² + t² S)

which is exact where β is Gaussian and log w linear in a. σ and S are those of k behaviour samples. With the
expectation taken over these samples instead, the guided flow would end in one of them, drawn with chances
∝ w(s, a_j). The limit τ → 0 of that is ``supported`` (zol.adapt.supported), which therefore is guidance that
makes no new actions between the samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from pydantic import Field as Setting
from torch import Tensor

from zol.adapt.imagined_choice import TWO_ACCOUNTS, chosen
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.supported import FlowConfig, Supported, supported_policy
from zol.adapt.zol import score
from zol.models.flow import Field, follow


class GuidedConfig(FlowConfig):
    """Settings of guided acting: those of the flow, and how far it is bent."""

    temperature: float = Setting(default=0.5, gt=0)
    """τ of the advantage, in standard deviations of Q over behaviour samples"""


def guided(field: Field, log_ratio: Callable[[Tensor], Tensor], variance: Tensor) -> Field:
    """The field v_w for ``log_ratio``, actions ``[..., A]`` → ``[...]``, and variances S that broadcast."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        v, left = field(x, t), 1 - t
        with torch.enable_grad():
            expected = (x + left * v).detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(log_ratio(expected).sum(), expected)
        return v + left * variance / (left.square() + t.square() * variance) * slope

    return velocity


@dataclass(frozen=True)
class Guided(Supported):
    """The policies of T tasks: the best of k *guided* behaviour samples."""

    temperature: float

    def weigh(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Guided samples ``[T, E, k, A]`` and their values ``[T, E, k]``."""
        drawn, worth = super().weigh(obs)
        spread = worth.std(-1, correction=0, keepdim=True).clamp_min(torch.finfo(worth.dtype).eps)
        states = obs.unsqueeze(-2)

        def log_ratio(action: Tensor) -> Tensor:
            return self.value(states, action.clamp(-1.0, 1.0)) / (self.temperature * spread)

        field = guided(self.flow.at(states), log_ratio, drawn.var(-2, correction=0, keepdim=True))
        noise = self.noise.expand(*obs.shape[:-1], *self.noise.shape)
        action = follow(field, noise, self.config.flow_steps)
        return action, self.value(states, action)


def guided_acting(problem: Problem, config: GuidedConfig) -> Behaviour:
    """Plain FB's latents, acted out by a behaviour flow that their ratios guide."""
    found = score(problem.model, problem.evidence, problem.start)
    plain = supported_policy(problem, config)
    policy = Guided(**vars(plain), temperature=config.temperature)
    return chosen(problem, found, policy) if config.imagined else Behaviour(found, policy)


GUIDED = Method(guided_acting, GuidedConfig(), single_latent=False, revision=2, correction=TWO_ACCOUNTS)
