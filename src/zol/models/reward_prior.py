r"""A prior over rewards: what somebody might ask of a body, as functions of a few named quantities.

A reward is a product, or a mean, of up to three ramps, each over one quantity x such as a height or a speed:

    ramp(x) = floor + (1 − floor) · max(0, 1 − d(x) / margin),    d(x) = max(low − x, x − high, 0)

so it is 1 between ``low`` and ``high``, one of which may be open, and falls linearly outside. The rewards of
control suites have this form. Bounds are drawn relative to the range [a, b] of the quantity in the data, and
reach beyond it, so that there are rewards for more than the data show.

Most of what is asked of a body is asked of one that is on its feet: "walk" means high, upright *and* fast,
and hardly one random product in a hundred says that. For quantities of *posture*, :func:`posture_rewards`
draws products of a ramp for much of each of them and a ramp over another quantity.

Rewards are rows of one tensor ``[K, 3 · 6 + 1]``, which training stores like any other state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RAMPS = 3  # of one reward at the most
PARTS = 6  # numbers of a ramp: quantity, low, high, margin, floor, used
WIDTH = RAMPS * PARTS + 1
OPEN = 1e9  # a bound that is none


@dataclass(frozen=True)
class PriorShape:
    """How rewards are drawn."""

    counts: tuple[float, float, float] = (0.35, 0.4, 0.25)
    """chances of one, two and three ramps"""
    near: float = 0.1
    """chance that a ramp has both bounds"""
    at_least: float = 0.55
    """chance that a ramp with one bound asks for more, not for less"""
    reach: float = 1.4
    """bounds lie in the range of the data widened by this factor about its middle"""
    margins: tuple[float, float] = (0.1, 1.0)
    """margins, drawn evenly on a logarithmic scale, in units of that widened range"""
    averaged: float = 0.25
    """chance that ramps are averaged instead of multiplied"""
    posture_bounds: tuple[float, float] = (0.6, 1.0)
    """where ramps of posture begin to be 1, from 0, the least in the data, to 1, the most"""
    posture_margins: tuple[float, float] = (0.3, 1.0)
    """their margins, drawn evenly on a logarithmic scale, in units of the range of the data"""
    posture_alone: float = 0.2
    """chance that a reward of posture asks for nothing else"""


USUAL = PriorShape()


def draw_rewards(
    count: int, low: Tensor, high: Tensor, generator: torch.Generator, shape: PriorShape = USUAL
) -> Tensor:
    """``count`` rewards ``[K, WIDTH]`` over quantities whose range in the data is ``low … high`` [Q]."""
    size, device = (count, RAMPS), generator.device

    def uniform() -> Tensor:
        return torch.rand(size, generator=generator, device=device)

    if len(low) >= RAMPS:  # different quantities
        quantity = torch.rand(count, len(low), generator=generator, device=device).argsort(-1)[:, :RAMPS]
    else:
        quantity = torch.randint(len(low), size, generator=generator, device=device)
    chances = torch.tensor(shape.counts, device=device)
    ramps = 1 + torch.multinomial(chances, count, True, generator=generator)
    used = torch.arange(RAMPS, device=device) < ramps.unsqueeze(-1)
    middle = ((low + high) / 2)[quantity]
    half = shape.reach * ((high - low) / 2)[quantity]
    bound = middle + half * (2 * uniform() - 1)
    smallest, largest = (math.log(m) for m in shape.margins)
    margin = 2 * half * torch.exp(smallest + (largest - smallest) * uniform())
    kind, nearness = uniform(), 0.3 * half * uniform()
    more, less = kind < (1 - shape.near) * shape.at_least, kind < 1 - shape.near
    lower = torch.where(more, bound, torch.where(less, -OPEN, bound - nearness))
    upper = torch.where(more, OPEN, torch.where(less, bound, bound + nearness))
    floor = torch.where(uniform() < 0.6, 0.0, 0.3 * uniform())
    averaged = torch.rand(count, 1, generator=generator, device=device) < shape.averaged
    parts = torch.stack([quantity, lower, upper, margin, floor, used], dim=-1)  # [K, RAMPS, PARTS]
    return torch.cat([parts.flatten(1), averaged.to(parts.dtype)], dim=-1)


def posture_rewards(
    count: int,
    posture: Sequence[int],
    low: Tensor,
    high: Tensor,
    generator: torch.Generator,
    shape: PriorShape = USUAL,
) -> Tensor:
    """Products ``[count, WIDTH]`` of ramps for much of every quantity of ``posture`` and one for another.

    A share of them, ``posture_alone``, asks for posture only.
    """
    held = torch.tensor(posture)
    others = torch.tensor([q for q in range(len(low)) if q not in posture])
    size, span = (count, len(held)), (high - low)[held]
    first, last = shape.posture_bounds
    bound = low[held] + span * (first + (last - first) * torch.rand(size, generator=generator))
    smallest, largest = (math.log(m) for m in shape.posture_margins)
    margin = span * torch.exp(smallest + (largest - smallest) * torch.rand(size, generator=generator))
    zero = torch.zeros(size)
    rewards = torch.zeros(count, WIDTH)
    ramps = _ramps(rewards)  # a view
    ramps[:, : len(held)] = torch.stack([held.expand(size), bound, zero + OPEN, margin, zero, zero + 1], -1)
    ramps[:, len(held) :, 3] = 1.0  # the margin of a ramp that is not used; any but zero
    if len(others):
        more = _ramps(draw_rewards(count, low[others], high[others], generator, shape))[:, 0]
        more[:, 0] = others[more[:, 0].long()].to(more.dtype)
        more[:, -1] = (torch.rand(count, generator=generator) >= shape.posture_alone).to(more.dtype)
        ramps[:, len(held)] = more
    return rewards


def _ramps(rewards: Tensor) -> Tensor:
    return rewards[..., :-1].unflatten(-1, (RAMPS, PARTS))


def evaluate(rewards: Tensor, values: Tensor, chunk: int = 256) -> Tensor:
    """Every reward ``[K, WIDTH]`` in every state of which these are the quantities ``[N, Q]``: ``[N, K]``."""
    found = []
    for part in rewards.split(chunk):
        quantity = _ramps(part)[..., 0].long()
        found.append(_combined(part, values[:, quantity]))
    return torch.cat(found, dim=-1)


def _combined(rewards: Tensor, x: Tensor) -> Tensor:
    """The rewards ``[K]`` of quantities ``[..., K, RAMPS]``."""
    _, low, high, margin, floor, used = _ramps(rewards).unbind(-1)
    distance = torch.maximum(low - x, x - high).clamp_min_(0) / margin
    ramp = floor + (1 - floor) * (1 - distance).clamp_min_(0)
    product = torch.where(used > 0, ramp, 1.0).prod(-1)
    mean = torch.where(used > 0, ramp, 0.0).sum(-1) / used.sum(-1)
    return torch.where(rewards[..., -1] > 0, mean, product)


def informative(rewards: Tensor, values: Tensor, least: float = 0.03) -> Tensor:
    """Those rewards that vary over these states by a standard deviation of at least ``least``."""
    return rewards[evaluate(rewards, values).std(0) >= least]


def seldom_earned(rewards: Tensor, values: Tensor, share: float) -> Tensor:
    """This share of the rewards: those that earn least on average over the states that are usually visited.

    Lying on the floor needs no practice. What a body seldom earns does, and as it learns to stand, rewards
    for standing become usual and others, for walking, remain: the pool follows what was learned.
    """
    earned = evaluate(rewards, values).mean(0)
    return rewards[earned.argsort(stable=True)[: max(1, round(share * len(rewards)))].sort().values]
