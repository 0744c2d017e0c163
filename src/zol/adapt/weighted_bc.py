r"""Behaviour cloning with weights: a policy of its own for every task, made of the data's actions alone.

    π(a|s) ∝ w(s, a) β(a|s)

is what a flow learns that is fitted to the sample's actions, each counted with its weight (zol.models.flow).
With the exact density ratio w = d^π/d^β of a policy π whose actions the data hold, it *is* that policy
wherever π goes, because w(s, a) β(a|s) d^β(s) = d^π(s) π(a|s). Which ratio it is, is a setting:

    advantage   exp((Q(s, a) − V(s)) / (τ σ(s))) with the model's own value Q(s, a) = F(s, a, z)ᵀv, and V and
                σ its mean and spread over behaviour samples: better than the behaviour by one step
    fb          max(w_z(s'), 0), the model's own ratio of π_z in the state that the action leads to
    optidice    the ratio of the best behaviour within the support, learned for the task (zol.value.optidice)

What acts is a new network, so that the method belongs to those that change weights. It follows the flow from
the centre of the noise, which makes it a function of the state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from zol import measure, prompt
from zol.adapt.imagined_choice import TWO_ACCOUNTS, chosen
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.supported import FlowConfig, Supported, Transitions, fit_flow, supported_policy
from zol.adapt.zol import score
from zol.models.flow import ActionFlow
from zol.value.optidice import OptiDICESettings, optidice_weights

AT_ONCE = 512  # transitions whose behaviour samples are valued together
STEEPEST = 30.0  # of an exponent; weights are cut long before


class WeightedBCConfig(FlowConfig):
    """Settings of weighted cloning: those of the flow, and which weights."""

    weights: Literal["advantage", "fb", "optidice"] = "advantage"
    """which ratio: one step of improvement, π_z by the model, or the best behaviour in the support"""
    alpha: float = Field(default=1.0, gt=0)
    """α of OptiDICE, in standard deviations of the rewards: small is greedy, large stays at the data"""
    temperature: float = Field(default=0.5, gt=0)
    """τ of the advantage, in standard deviations of Q over behaviour samples"""
    largest: float = Field(default=20.0, gt=0)
    """weights have mean one, and are cut here"""


@dataclass(frozen=True)
class Cloned:
    """The policies of T tasks, a flow each; called with observations ``[T, E, D]`` like any other."""

    flows: Sequence[ActionFlow]
    flow_steps: int

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        actions = [flow.central(own, self.flow_steps) for flow, own in zip(self.flows, obs, strict=True)]
        return torch.stack(actions)


def weighted_cloning(problem: Problem, config: WeightedBCConfig) -> Behaviour:
    """A flow per task, fitted to the sample's transitions with weights."""
    data = Transitions.of(problem)
    weights = transition_weights(problem, data, config)
    flows = [
        fit_flow(
            data,
            config,
            problem.generator(f"weighted-bc {task}"),
            weights=own,
            progress=problem.progress,
            what=f"cloning {task}",
        )
        for task, own in zip(problem.evidence.tasks, weights, strict=True)
    ]
    found = score(problem.model, problem.evidence, problem.start)
    kept = {"kept_share": measure.effective_sample_size(weights).unsqueeze(0).double()}
    found = replace(found, diagnostics=dict(found.diagnostics) | kept)
    policy = Cloned(flows, config.flow_steps)
    return chosen(problem, found, policy) if config.imagined else Behaviour(found, policy)


@torch.no_grad()
def transition_weights(
    problem: Problem,
    data: Transitions,
    config: WeightedBCConfig,
    settings: OptiDICESettings | None = None,
) -> Tensor:
    """w ``[T, N]`` of every transition for every task: not negative, of mean one, cut at ``largest``.

    ``settings`` are those of OptiDICE, whose networks have their defaults otherwise.
    """
    if config.weights == "advantage":
        raw = _advantages(supported_policy(problem, config), data, config.temperature)
    elif config.weights == "fb":
        model = problem.model
        mu = measure.forward_mean(model, problem.evidence.starts, problem.start)
        raw = measure.raw_ratio(model, mu, prompt.backward_features(model, data.next_obs))
    else:
        sample = problem.value_problem().transitions
        assert sample is not None  # or there were no data
        generator, gamma = problem.generator("optidice"), problem.model.discount
        settings, bar = settings or OptiDICESettings(alpha=config.alpha), problem.progress
        raw = optidice_weights(sample, sample.rewards, gamma, settings, generator=generator, progress=bar)
    return measure.shape_weights(raw, "relu", clip=config.largest, renormalise=True)


def _advantages(rule: Supported, data: Transitions, temperature: float) -> Tensor:
    """exp((Q(s, a) − V(s)) / (τ σ(s))) ``[T, N]``."""
    tasks, parts = len(rule.z), []
    for obs, action in zip(data.obs.split(AT_ONCE), data.action.split(AT_ONCE), strict=True):
        states = obs.expand(tasks, *obs.shape)
        own = rule.value(states.unsqueeze(-2), action.expand(tasks, *action.shape).unsqueeze(-2))  # [T, n, 1]
        others = rule.weigh(states)[1]  # [T, n, k]
        spread = others.std(-1, correction=0).clamp_min(torch.finfo(others.dtype).eps)
        parts.append((own.squeeze(-1) - others.mean(-1)) / spread)
    return (torch.cat(parts, dim=-1) / temperature).clamp_max(STEEPEST).exp()


WEIGHTED_BC = Method(
    weighted_cloning,
    WeightedBCConfig(),
    uses="weights",
    single_latent=False,
    revision=2,
    correction=TWO_ACCOUNTS,
)
