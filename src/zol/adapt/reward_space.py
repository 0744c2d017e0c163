r"""Latents from reward space: prompts of rewards in which a task's best or rarest states count more.

A latent is a prompt of *some* reward, and which one serves a task best is not said by the task alone: few
good states drown in many ordinary ones, and what the data hold often counts often. Every candidate here is

    z = Π( E[B(s) g(s)] ),      ρ(s) = (r(s) − min r) / (max r − min r),      ranges over the sample,

    top share q       g = ρ · 1[r ≥ the (1 − q) quantile of r]          q = 1, 5, 10 %
    softmax T         g = N softmax_N(T ρ) · ρ                           T = 2, 5, 20
    balanced α        g = w r,   w(s) ∝ n_c(s)^−α,   E[w] = 1            α = ½, 1

n_c(s) counts the sampled states in the cluster of s, by k-means on the directions of B: with α = 1 every
cluster counts as if it were visited equally often. Nothing but the evidence enters, and none of it knows the
unit of a reward. Noise on the sphere moves a latent in d directions of which most mean nothing to the task;
these moves are few, and each of them means something.
"""

import torch
from torch import Tensor

from zol import prompt
from zol.evidence import Evidence
from zol.models.base import Model

SHARES = (0.01, 0.05, 0.1)
TEMPERATURES = (2.0, 5.0, 20.0)
BALANCES = (0.5, 1.0)
CLUSTERS, SWEEPS = 64, 10
TINY = 1e-12  # a squared distance between directions that are the same


def reward_space_latents(model: Model, evidence: Evidence, generator: torch.Generator) -> Tensor:
    """Candidates ``[T, K, d]`` of every task: top shares, softmax temperatures, balanced prompts.

    A task whose reward is the same in every state has the plain prompt instead: no state is better.
    """
    rewards = evidence.rewards
    relative = relative_rewards(rewards)
    weights = balance_weights(prompt.backward_features(model, evidence.obs), generator)  # [A, N]
    found = [prompt.reward(model, evidence.obs, top_share(relative, share)) for share in SHARES]
    found += [
        prompt.reward(model, evidence.obs, relative, "weighted", temperature=temperature)
        for temperature in TEMPERATURES
    ]
    found += [prompt.reward(model, evidence.obs, rewards * weight) for weight in weights]
    latents = torch.stack(found, dim=1)
    varies = (rewards.amax(-1) > rewards.amin(-1))[:, None, None]
    return torch.where(varies, latents, evidence.prompt(model).unsqueeze(1))


def relative_rewards(rewards: Tensor) -> Tensor:
    """ρ: rewards ``[T, N]`` from 0 to 1; 1 everywhere where all of a task's are the same."""
    low, high = rewards.amin(-1, keepdim=True), rewards.amax(-1, keepdim=True)
    return torch.where(high > low, (rewards - low) / torch.where(high > low, high - low, 1.0), 1.0)


def top_share(rewards: Tensor, share: float) -> Tensor:
    """Rewards ``[T, N]`` with zeros outside the best ``share`` of the states; all that tie with it are in."""
    count = max(1, round(share * rewards.shape[-1]))
    least = rewards.topk(count, dim=-1).values[:, -1:]
    return rewards.where(rewards >= least, 0.0)


def balance_weights(
    features: Tensor,
    generator: torch.Generator,
    clusters: int = CLUSTERS,
    balances: tuple[float, ...] = BALANCES,
) -> Tensor:
    """w ``[A, N]`` of states with features ``[N, d]`` for every α, by the sizes of their clusters."""
    member = cluster(torch.nn.functional.normalize(features, dim=-1), clusters, generator)
    size = member.bincount().to(features.dtype)[member]
    weights = torch.stack([size**-alpha for alpha in balances])
    return weights / weights.mean(-1, keepdim=True)


def cluster(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The cluster of every point ``[N]`` among at most ``count``: k-means of points ``[N, d]``."""
    centres = _spread_out(points, count, generator)
    member = torch.cdist(points, centres).argmin(-1)
    for _ in range(SWEEPS):
        sums = torch.zeros_like(centres).index_add(0, member, points)
        sizes = member.bincount(minlength=len(centres)).to(points.dtype).unsqueeze(-1)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1.0), centres)
        before, member = member, torch.cdist(points, centres).argmin(-1)
        if torch.equal(before, member):
            break
    return member


def _spread_out(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """First centres as k-means++ draws them: far from all before, by the square of the distance."""
    chosen = [torch.randint(len(points), (1,), generator=generator)]
    distance = (points - points[chosen[0]]).square().sum(-1)
    while len(chosen) < count and bool((distance > TINY).any()):
        chosen.append(torch.multinomial(distance.clamp_min(0.0), 1, generator=generator))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(-1))
    return points[torch.cat(chosen)]
