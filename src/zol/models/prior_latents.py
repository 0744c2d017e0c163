r"""Training latents of random rewards: what somebody might ask for, made from the columns of a batch alone.

A reward of the prior (zol.models.reward_prior) is a product, or a mean, of ramps over one to three columns.
It is a function of *where a value lies among those of the batch*, not of the value: with

    q_k(s) = P(s'_k < s_k) + ½ P(s'_k = s_k)                         over the N states s' of the batch

thresholds drawn evenly from [0, 1] are random quantiles, steep ramps are half-spaces, and neither units nor
tails of a column matter. Nobody has to know what a column means. The latent of a reward is its prompt,

    z = Π( mean_i B(s'_i) r(s'_i) ),

as at test time. Rewards that hardly vary over the batch are dropped.
"""

import torch
from torch import Tensor

from zol.models.layers import unit
from zol.models.reward_prior import PriorShape, draw_rewards, evaluate, informative

REWARDS = 64  # that are drawn for a batch
SHAPE = PriorShape(
    at_least=0.5, reach=1.0, margins=(0.01, 1.0)
)  # more and less alike; quantiles end at 0 and 1


@torch.no_grad()
def reward_latents(B: Tensor, states: Tensor, generator: torch.Generator) -> Tensor:
    """Latents ``[K, d]`` of at most ``REWARDS`` random rewards, for B ``[N, d]`` of states ``[N, D]``.

    K is smaller, and may be 0, where rewards do not vary over these states.
    """
    low = torch.zeros(states.shape[1], device=generator.device)
    drawn = draw_rewards(REWARDS, low, low + 1, generator, SHAPE).to(states.device)
    places = quantiles(states)
    rewards = informative(drawn, places)
    if not len(rewards):
        return B.new_empty(0, B.shape[1])
    return unit(evaluate(rewards, places).to(B.dtype).mT @ B / len(B))


def quantiles(states: Tensor) -> Tensor:
    """q of every value among those of its column, ``[N, D]``, in (0, 1)."""
    values = states.mT.contiguous()
    ordered = values.sort(-1).values
    below, until = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return ((below + until) / (2 * len(states))).mT.to(states.dtype)
