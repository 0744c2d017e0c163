r"""Subgoals: a far goal is reached through a chain of states of the data, each within the model's reach.

A model knows near goals better than far ones: from T steps away a goal is worth γᵀ of what it is worth up
close, and where that drowns in the errors of F, the policy of B(goal) wanders. The steps from one sampled
state i to another one j, going for j with z_j, can be read off the successor measure:

    M_ij = F(s_i, π_{z_j}(s_i), z_j)ᵀB(s_j),      M_ij = γ^(T_ij − 1) M_jj   for a policy that then stays,
    T_ij = 1 + log(M_jj / M_ij) / log(1/γ)

which is exact for exact models of deterministic worlds. Times of up to ``reach`` horizons 1/(1 − γ) are the
edges of a graph; shortest ways through it lead from every landmark to the goal. Acting needs no memory: the
landmark that is most like the state, by the cosine of B, says which latent to act with, that of the farthest
landmark on its shortest way that is still within reach. A latent is Π of the mean of B over the sampled
states that are most like its landmark. Where no way is known, the policy goes for the goal itself.

The goal is the task's own; a task without one is given the sampled state with the largest reward.
"""

import math
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from zol import measure
from zol.adapt.directions import goals_of
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.zol import score
from zol.common.config import Config
from zol.models.base import Model
from zol.prompt import backward_features

ROWS = 16_384  # pairs of landmarks per call of F
TINY = 1e-12
SLACK = 1.05  # how much longer than the shortest way one over a subgoal may be


class SubgoalConfig(Config):
    """Settings of the chain."""

    landmarks: int = Field(default=256, ge=1)
    """sampled states that may be subgoals"""
    reach: float = Field(default=0.5, gt=0)
    """longest way between two of them, in horizons 1/(1 − γ)"""


@dataclass(frozen=True)
class Chains:
    """The policies of T tasks; called with observations ``[T, E, D]``."""

    model: Model
    features: Tensor  # B of landmarks on the unit sphere, the goal last, [T, K, d]
    latents: Tensor  # what to act with where a landmark is most like the state, [T, K, d]

    @torch.no_grad()
    def latent(self, obs: Tensor) -> Tensor:
        """z ``[T, E, d]`` for the states ``[T, E, D]``."""
        nearest = (_unit(self.model.backward(obs)) @ self.features.mT).argmax(-1, keepdim=True)  # [T, E, 1]
        return self.latents.take_along_dim(nearest, dim=-2)

    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]``."""
        return self.model.act(obs, self.latent(obs))


def through_subgoals(problem: Problem, settings: SubgoalConfig) -> Behaviour:
    """A policy per task that follows the shortest chain; its latent, where one is shown, is the goal's."""
    model, evidence = problem.model, problem.evidence
    order = torch.randperm(len(evidence.obs), generator=problem.generator("landmarks"))
    chosen = evidence.obs[order[: settings.landmarks]]
    limit = settings.reach / (1.0 - model.discount)
    features, latents, last, connected = [], [], [], []
    for goal in goals_of(problem):
        landmarks = torch.cat([chosen, goal.unsqueeze(0)])
        z = cell_latents(model, landmarks, evidence.obs)
        following, steps = next_subgoals(travel_times(model, landmarks, z), limit)
        features.append(_unit(backward_features(model, landmarks)))
        latents.append(z[following])
        last.append(z[-1])
        connected.append(steps.isfinite().double().mean())
    found = score(model, evidence, torch.stack(last))
    extra = {"connected": torch.stack(connected).unsqueeze(0)}  # share of landmarks from which a way is known
    result = replace(found, configs=(settings.model_dump(),), diagnostics=dict(found.diagnostics) | extra)
    return Behaviour(result, Chains(model, torch.stack(features), torch.stack(latents)))


@torch.no_grad()
def cell_latents(model: Model, landmarks: Tensor, states: Tensor) -> Tensor:
    """Π of the mean of B over every landmark and the states that are most like it, ``[K, d]``."""
    own, others = model.backward(landmarks), backward_features(model, states)
    cell = (_unit(others) @ _unit(own).mT).argmax(-1)
    return model.project(own.index_add(0, cell, others))


@torch.no_grad()
def travel_times(model: Model, landmarks: Tensor, z: Tensor) -> Tensor:
    """T_ij ``[K, K]``, steps from landmark i to landmark j by the model; infinite where it sees no way."""
    count, features = len(landmarks), model.backward(landmarks)
    columns = []
    for targets in torch.arange(count).split(max(1, ROWS // count)):
        aim = z[targets].unsqueeze(1).expand(-1, count, -1)  # [m, K, d]
        states = landmarks.expand(len(targets), -1, -1)
        F = model.forward(states, aim, model.act(states, aim)).mean(0)
        columns.append(measure.raw_ratio(model, F, features[targets].unsqueeze(1)).squeeze(-1))
    M = torch.cat(columns).mT.double()  # [i, j], up to a constant that does not matter
    share = (M / M.diagonal().clamp_min(TINY)).clamp(TINY, 1.0)
    first = 0.0 if measure.counts_current_state(model) else 1.0
    times = first - share.log() / math.log(1.0 / model.discount)
    return torch.where(M > 0, times, torch.inf).fill_diagonal_(0.0)


def next_subgoals(times: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """For every landmark the subgoal on its way to the last one ``[K]``, and the steps of that way ``[K]``.

    Of those within ``limit`` steps over which a way is hardly longer than the shortest, it is the last one.
    """
    edges = torch.where(times <= limit, times, torch.inf)
    left = torch.full(edges.shape[:1], torch.inf, dtype=edges.dtype)
    left[-1] = 0.0
    for _ in range(len(edges)):  # Bellman and Ford: ways of one more edge at a time
        shorter = torch.minimum(left, (edges + left).amin(-1))
        if torch.equal(shorter, left):
            break
        left = shorter
    good = edges + left <= SLACK * left.unsqueeze(1) + TINY  # [i, j]
    following = torch.where(good, left, torch.inf).argmin(-1)
    return torch.where(left.isfinite(), following, len(left) - 1), left


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


SUBGOALS = Method(through_subgoals, SubgoalConfig(), single_latent=False)
