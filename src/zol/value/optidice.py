r"""The best behaviour that the data support, as weights of their transitions: OptiDICE (Lee et al., 2021).

Among all occupancies d of a policy, OptiDICE wants the one with the most reward that stays near the data,

    max_d  E_d[r] − α E_β[f(w)],     w = d/β ≥ 0,     d follows the Bellman-flow equation.

With a multiplier ν(s) for the flow through every state this is one convex problem without a policy, and
without a saddle point, because the best w is known in closed form from the advantage e of a transition:

    e      = r + γ'ν(s') − ν(s)
    w*     = max(0, f'⁻¹((e − λ)/α))
    min_ν  (1 − γ) E_0[ν(s0)] + α E_β[f*((e − λ)/α)] + λ          f*(y) = max_{w ≥ 0} (w y − f(w))

λ holds E_β[w] = 1 and is there if ``normalised``; a true occupancy has mass one unless episodes end, so it
says nothing new, and it keeps a network's errors from adding up. Two divergences, as published:

    χ²        f(w) = (w − 1)²/2                          w* = max(0, 1 + y)    f* = max(0, 1 + y)²/2 − 1/2
    soft χ²   the same for w ≥ 1,                        w* = 1 + y            f* = y + y²/2
              w log w − w + 1 for w < 1, y < 0           w* = e^y              f* = e^y − 1

Soft χ² gives no transition the weight zero, so that ν learns everywhere. e is taken of single transitions: in
worlds with chance this is an upper bound (f* is convex), in deterministic ones it is exact.

It is no estimator of a latent: its value is what a task is worth at best within the data's support, and its
weights are what behaviour-supported policies imitate.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor, nn

from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.value.networks import Networks, NetworkSettings, Standardised, minimise_whole, schedule

Divergence = Literal["chi2", "soft-chi2"]


class OptiDICESettings(NetworkSettings):
    """How ν is learned, and how far the best behaviour may leave the data."""

    steps: int = Field(default=1_000, ge=1)
    """gradient steps"""
    alpha: float = Field(default=1.0, gt=0)
    """α, in units of the standard deviation of the rewards: small is greedy, large stays at the data"""
    divergence: Divergence = "soft-chi2"
    """f: chi2 or soft-chi2"""
    normalised: bool = True
    """whether the weights are held at mean one; not where episodes end"""


@dataclass(frozen=True)
class Supported:
    """The optimum of T tasks: weights ``[T, N]`` of the transitions, and what they earn per step, ``[T]``."""

    weights: Tensor
    value: Tensor  # Σwr/Σw
    objective: Tensor  # the dual objective, an estimate of max E[w r] − α E[f(w)], [T]


def optidice_weights(
    evidence: Evidence,
    reward: Tensor,
    gamma: float,
    settings: OptiDICESettings | None = None,
    *,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """w* of the evidence's transitions for one reward ``[N]``, or ``[T, N]`` for several."""
    found = optidice(evidence, reward, gamma, settings, generator=generator, progress=progress).weights
    return found if reward.ndim == 2 else found[0]


def optidice(
    evidence: Evidence,
    reward: Tensor,
    gamma: float,
    settings: OptiDICESettings | None = None,
    *,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> Supported:
    """The best behaviour in the data's support for rewards ``[T, N]`` (or ``[N]``) of the transitions.

    With no hidden layers ν is linear in the observation, and the problem is solved to the end; on one-hot
    states that is the exact optimum.
    """
    settings = settings or OptiDICESettings()
    generator = generator if generator is not None else torch.Generator().manual_seed(0)
    if evidence.before is None or evidence.terminated is None:
        raise DataError("OptiDICE needs whole transitions: gather the evidence from a dataset")
    rewards = (reward if reward.ndim == 2 else reward.unsqueeze(0)).to(evidence.obs.dtype)
    if rewards.shape[-1] != len(evidence.obs):
        raise DataError(
            f"rewards have shape {tuple(reward.shape)}; {len(evidence.obs)} transitions need "
            f"({len(evidence.obs)},) or (tasks, {len(evidence.obs)})"
        )
    # A constant changes no best behaviour as long as no episode ends, and a unit none at all.
    scale = rewards.std(-1, keepdim=True, correction=0)
    scale = torch.where(scale > 0, scale, 1.0)
    problem = _Dual(
        evidence.before,
        evidence.obs,
        evidence.starts,
        gamma * (~evidence.terminated).to(rewards.dtype),
        rewards / scale,
        gamma,
        settings,
        generator,
    )
    with torch.enable_grad():
        problem.solve(progress)
    weights = problem.weights()
    mass = weights.mean(-1).clamp_min(torch.finfo(weights.dtype).tiny)
    objective = problem.loss(None).detach() * scale.squeeze(-1)
    return Supported(weights, (weights * rewards).mean(-1) / mass, objective)


class _Dual(nn.Module):
    """The convex dual of T tasks: the networks ν and the multipliers λ."""

    def __init__(
        self,
        before: Tensor,
        after: Tensor,
        starts: Tensor,
        discount: Tensor,
        rewards: Tensor,
        gamma: float,
        settings: OptiDICESettings,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        units = Standardised(before)
        self.before, self.after, self.starts = units(before), units(after), units(starts)
        self.discount, self.rewards, self.gamma = discount, rewards, gamma
        self.settings, self.generator = settings, generator
        self.nu = Networks(before.shape[-1], 1, len(rewards), settings, generator).to(rewards.dtype)
        self.lam = nn.Parameter(torch.zeros(len(rewards), settings.members, dtype=rewards.dtype))
        self.lam.requires_grad_(settings.normalised)

    def value(self, states: Tensor) -> Tensor:
        """ν ``[T, P, N]``: begins with the value of the mean reward."""
        mean = self.rewards.mean(-1)[:, None, None]
        y = self.nu(states).reshape(len(self.rewards), self.settings.members, -1)
        return (mean + y) / (1.0 - self.gamma)

    def advantage(self, rows: Tensor | None) -> Tensor:
        """(e − λ)/α ``[T, P, N]`` of some transitions, or of all."""
        pick = slice(None) if rows is None else rows
        following = self.discount[pick] * self.value(self.after[pick])
        e = self.rewards[:, None, pick] + following - self.value(self.before[pick])
        return (e - self.lam.unsqueeze(-1)) / self.settings.alpha

    def loss(self, rows: Tensor | None) -> Tensor:
        """The dual objective of every task ``[T]``, summed over members only."""
        gain = self.settings.alpha * conjugate(self.advantage(rows), self.settings.divergence).mean(-1)
        total = (1.0 - self.gamma) * self.value(self.starts).mean(-1) + gain + self.lam
        return total.mean(-1)

    def solve(self, progress: Progress | None) -> None:
        """Minimise over ν and λ."""
        if self.settings.layers == 0:
            minimise_whole(lambda: self.loss(None).sum(), self)
            return
        trained = [p for p in self.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(trained, lr=self.settings.learning_rate)
        count = len(self.before)
        for _ in schedule([optimiser], self.settings, progress, "OptiDICE"):
            rows = torch.randint(count, (min(self.settings.batch, count),), generator=self.generator)
            optimiser.zero_grad()
            (self.loss(rows).sum() * self.settings.members).backward()
            optimiser.step()

    @torch.no_grad()
    def weights(self) -> Tensor:
        """w* of all transitions, the mean of the members ``[T, N]``."""
        return best_weights(self.advantage(None), self.settings.divergence).mean(1)


def best_weights(y: Tensor, divergence: Divergence) -> Tensor:
    """argmax_{w ≥ 0} (w y − f(w)) = max(0, f'⁻¹(y))."""
    if divergence == "chi2":
        return (1.0 + y).clamp_min(0.0)
    return torch.where(y >= 0, 1.0 + y, torch.exp(y.clamp_max(0.0)))


def conjugate(y: Tensor, divergence: Divergence) -> Tensor:
    """f*(y) = max_{w ≥ 0} (w y − f(w))."""
    if divergence == "chi2":
        return 0.5 * (1.0 + y).clamp_min(0.0).square() - 0.5
    return torch.where(y >= 0, y + 0.5 * y.square(), torch.expm1(y.clamp_max(0.0)))
