r"""Rewards of a prior as latents: features that span them, and where each reward lies.

Take K rewards of the prior, less their means, on a sample of states: a table X ``[S, K]`` with principal
directions XᵀX = V Λ Vᵀ. The first d of them give features of any state,

    φ*(s) = (r(s) − E[r]) V_d Λ_d^{−1/2} √S · (λ_i / λ_1)^{α/2} / (4 √d),

in which nearly every reward of the prior is linear, r ≈ E[r] + φ*ᵀu. A reward's latent is Π(u), the
direction of its least-squares weights. With α = 0 the features are white, and a latent is dominated by the
few directions that most rewards share; with α = 1 all directions count alike. The factor 1 / (4 √d) makes
the reward φᵀz of a latent vary by a quarter or so.

The sample is *balanced*: states are drawn evenly from clusters of their quantities, because states that a
young model rarely visits are often those that rewards ask for. When data have grown,
:meth:`RewardSpace.rebuild` takes a new sample, and turns the new features so that latents of the old rewards
stay where they were (an orthogonal Procrustes problem): policies of these latents remain what they are.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from zol.models.layers import unit
from zol.models.reward_prior import (
    WIDTH,
    draw_rewards,
    evaluate,
    informative,
    posture_rewards,
    seldom_earned,
)

SAMPLE = 4096  # S: states
BASIS = 384  # K: rewards whose directions make the features
CLUSTERS = 256
AT_ONCE = 16_384  # points whose distances to all centres are computed together
TAILS = 0.001  # of a quantity's distribution that do not count to its range
SCALE = 4.0
SELDOM = 0.5  # of the rewards that are drawn: those that are seldom earned are kept
AT_LEAST = 256  # rewards that are drawn at once: the seldom half of a handful would be chance


class RewardSpace(nn.Module):
    """The features, a pool of rewards with their latents, and the sample. All of it is state that resumes."""

    low: Tensor  # range of every quantity, [Q]
    high: Tensor
    obs: Tensor  # the sample, [S, D]
    values: Tensor  # its quantities, [S, Q]
    usual: Tensor  # quantities of a plain sample: what is usually visited, [S, Q]
    basis: Tensor  # the K rewards, [K, WIDTH]
    means: Tensor  # of them on the sample, [K]
    directions: Tensor  # from rewards to features, [K, d]
    pool: Tensor  # rewards that are trained, [R, WIDTH]
    latents: Tensor  # of them, [R, d]
    count: Tensor  # how many of them are in use

    def __init__(
        self,
        obs_dim: int,
        quantities: int,
        z_dim: int,
        pool: int,
        whitening: float,
        posture: Sequence[int] = (),
        posture_share: float = 0.0,
    ) -> None:
        super().__init__()
        self.whitening = whitening  # α
        self.posture, self.posture_share = tuple(posture), posture_share if posture else 0.0
        shapes = {
            "low": (quantities,),
            "high": (quantities,),
            "obs": (SAMPLE, obs_dim),
            "values": (SAMPLE, quantities),
            "usual": (SAMPLE, quantities),
            "basis": (BASIS, WIDTH),
            "means": (BASIS,),
            "directions": (BASIS, z_dim),
            "pool": (pool, WIDTH),
            "latents": (pool, z_dim),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def features(self, values: Tensor) -> Tensor:
        """φ* of states with these quantities, ``[N, Q] → [N, d]``."""
        return (evaluate(self.basis, values) - self.means) @ self.directions

    @torch.no_grad()
    def rebuild(self, obs: Tensor, values: Tensor, generator: torch.Generator) -> None:
        """Take a new sample from states ``[N, D]`` with quantities ``[N, Q]``, and features that suit it."""
        low, high = value_range(values)
        self.low.copy_(low)
        self.high.copy_(high)
        rows = balanced(values, low, high, SAMPLE, generator)
        self.obs.copy_(obs[rows])
        self.values.copy_(values[rows])
        self.usual.copy_(values[torch.randint(len(values), (SAMPLE,), generator=generator)])
        self.basis.copy_(self._draw(BASIS, generator))
        table = evaluate(self.basis, self.values).double()
        self.means.copy_(table.mean(0))
        table -= table.mean(0)
        variances, directions = torch.linalg.eigh(table.mT @ table / len(table))
        d = self.latents.shape[1]
        variances = variances.flip(0)[:d].clamp_min(1e-12)
        spread = (variances / variances[0]).pow(self.whitening / 2)
        white = directions.flip(1)[:, :d] / variances.sqrt()
        self.directions.copy_(white * spread / (SCALE * math.sqrt(d)))
        known = int(self.count)
        if known:
            turned = self.latents_of(self.earned(), self.features(self.values))
            left, _, right = torch.linalg.svd(turned.mT @ self.latents[:known])
            self.directions.copy_(self.directions @ (left @ right))

    @torch.no_grad()
    def grow(self, count: int, generator: torch.Generator) -> None:
        """Draw further rewards until the pool has ``count``; those that there are stay."""
        known, count = int(self.count), min(count, len(self.pool))
        if count > known:
            self.pool[known:count] = self._draw(count - known, generator)
            self.count.fill_(count)

    @torch.no_grad()
    def place(self, features: Tensor) -> None:
        """Set the latents of the pool from the features of the sample ``[S, d]``, as a prompt would."""
        self.latents[: int(self.count)] = self.latents_of(self.earned(), features)

    def earned(self) -> Tensor:
        """What every reward of the pool pays in every state of the sample, ``[S, K]``."""
        return evaluate(self.pool[: int(self.count)], self.values)

    @staticmethod
    def latents_of(earned: Tensor, features: Tensor) -> Tensor:
        """Π(argmin_u E[(r − φᵀu)²]), ``[K, d]``, of rewards ``[S, K]`` for features ``[S, d]``."""
        phi, table = (features - features.mean(0)).double(), earned.double()
        moment = phi.mT @ (table - table.mean(0)) / len(phi)  # [d, K]
        covariance = phi.mT @ phi / len(phi)
        weights = torch.linalg.pinv(covariance, rtol=1e-6, hermitian=True) @ moment
        return unit(weights.mT.float())

    def _draw(self, count: int, generator: torch.Generator) -> Tensor:
        """``count`` rewards, those of posture among them at random."""

        def usual(n: int) -> Tensor:
            return draw_rewards(n, self.low, self.high, generator)

        def posture(n: int) -> Tensor:
            return posture_rewards(n, self.posture, self.low, self.high, generator)

        if not self.posture:
            return self._seldom(usual, count)
        rewards = torch.empty(count, WIDTH)
        held = torch.rand(count, generator=generator) < self.posture_share
        rewards[held] = self._seldom(posture, int(held.sum()))
        rewards[~held] = self._seldom(usual, int((~held).sum()))
        return rewards

    def _seldom(self, draw: Callable[[int], Tensor], count: int) -> Tensor:
        """``count`` rewards that vary over the sample, and are earned less than others by what is usual."""
        found = self.pool[:0]
        while len(found) < count:
            drawn = informative(draw(max(AT_LEAST, 4 * count)), self.values)
            found = torch.cat([found, seldom_earned(drawn, self.usual, SELDOM)])
        return found[:count]


def value_range(values: Tensor) -> tuple[Tensor, Tensor]:
    """The range of every quantity ``[N, Q]``, without its tails."""
    low, high = torch.quantile(values, values.new_tensor([TAILS, 1 - TAILS]), dim=0)
    return low, high


def balanced(values: Tensor, low: Tensor, high: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Row numbers ``[count]`` of states ``[N, Q]``, drawn so that every cluster of them is drawn as often."""
    nearest = clusters((values - low) / (high - low).clamp_min(1e-9), generator)
    weight = 1.0 / torch.bincount(nearest)[nearest]
    return torch.multinomial(weight, count, replacement=True, generator=generator)


def clusters(points: Tensor, generator: torch.Generator, rounds: int = 10) -> Tensor:
    """The cluster of every point ``[N, Q]``, ``[N]``, by k-means from centres that are points."""
    some = points[torch.randint(len(points), (min(len(points), AT_ONCE),), generator=generator)]
    centres = some[torch.randperm(len(some), generator=generator)[:CLUSTERS]].clone()
    for _ in range(rounds):
        nearest = torch.cdist(some, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=len(centres)).unsqueeze(-1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, some)
        centres = torch.where(sizes > 0, sums / sizes.clamp_min(1), centres)
    return torch.cat([torch.cdist(part, centres).argmin(1) for part in points.split(AT_ONCE)])
