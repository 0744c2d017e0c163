r"""The density ratio of one policy by a saddle point: what the DICE family has in common.

Every function g of states and actions has the same inflow and outflow under the ratio ζ = d^π/β of a policy,
which is the flow equation of :mod:`zol.value.steps`. Its violation is

    L(ζ, g) = (1 − γ) E_0[g(s0, a0)] − E_β[ ζ(s, a) (g(s, a) − γ' g(s', a')) ],        a0, a' by π_z

and the true ratio is the only ζ with L = 0 for all g. Members of the family look for it as the saddle point
of one Lagrangian (Yang et al., 2020), and differ in what makes it strongly convex or concave:

    min_ζ max_{g, u}   L(ζ, g) + (α/2) E_β[(ζ − ζ0)²] − κ E_β[ζ r] − (p/2) E_β[g²] + η (u (E_β[ζ] − 1) − u²/2)

                   α   κ   p
    DualDICE       1   0   0     Nachum et al., 2019, with f(x) = (x − ζ0)²/2
    AlgaeDICE      α   1   0     Nachum et al., 2019b, at a fixed policy; g is then −Q, up to the penalty
    GradientDICE   0   0   1     Zhang et al., 2020; it replaces GenDICE, whose divergence is not convex
                                 in the parameters and may diverge

GradientDICE has η = 1. DualDICE and AlgaeDICE have η = 0 as published; here all have η = 1. The flow equation
does say that E[ζ] = 1, but only in units of 1 − γ: ζ = 0 violates it by as little, and is what functions find
that can only fit it approximately.

ζ0 = 1, the data themselves, is where everything begins. At every saddle point the flow equation holds, so
that all of them have the same ratio: J = E_β[ζ r].

**Linear classes** make it one linear system (:class:`LinearSaddle`). If they are the same for ζ and g, and
p = η = 0, its ratio is that of LSTD-Q whatever α and κ are; otherwise α p is a ridge. **Networks** descend in
ζ and ascend in g, by Adam with a rate that falls to zero. Descent turns around a saddle point rather than
into it, so the last layers of both are then solved for exactly, with a small ridge towards ζ0. With ``warm``
ζ0 is the ratio that :mod:`zol.value.lstd` has in the features of the model.

Where no episode ends a ratio has mass one, and the estimate is divided by its mass. The interval covers the
transitions (delta method) and the members.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor, nn

from zol import measure
from zol.value.base import ValueEstimate, ValueProblem, joined
from zol.value.linear import FlowEquations, orthonormal
from zol.value.lstd import value_features
from zol.value.networks import Networks, NetworkSettings, schedule
from zol.value.pairs import Pairs
from zol.value.steps import Steps, latent_chunks


class DICESettings(NetworkSettings):
    """The member of the family, and its networks."""

    alpha: float = Field(default=0.0, ge=0)
    """α, the weight of E[(ζ − ζ0)²]"""
    reward: bool = False
    """κ: whether the reward enters the saddle point, in units of its largest value"""
    penalty: float = Field(default=0.0, ge=0)
    """p, the weight of E[g²]"""
    mass: float = Field(default=1.0, ge=0)
    """η, the weight of E[ζ] = 1; not used where episodes end"""
    ridge: float = Field(default=0.1, ge=0)
    """added to α and p where the last layers of networks are solved for (see docs/values.md)"""
    warm: bool = False
    """whether to begin with the ratio that the model's features give"""


@dataclass(frozen=True)
class LinearSaddle:
    """The problem in two linear classes, ζ = φᵀθ and g = ψᵀx, both orthonormal in the data: K of them."""

    A: Tensor  # E[(ψ − γ'ψ') φᵀ], [K, l, m]
    b: Tensor  # (1 − γ) E_0[ψ], [K, l]
    mean: Tensor  # n = E[φ], [K, m]
    base: Tensor  # θ0 of ζ0, [K, m]
    reward: Tensor | None = None  # c = E[φ r], [K, m]

    def ratio(self, settings: DICESettings) -> Tensor:
        """θ ``[K, m]`` of the saddle point, where the gradients of the Lagrangian are zero.

        θ:   α (θ − θ0) − κ c − Aᵀx + η u n = 0
        x:   b − A θ − p x                  = 0
        u:   n·θ − 1                        = 0        (− u where p = 0: the flow implies the mass)
        """
        K, l, m = self.A.shape
        like: dict[str, Any] = {"dtype": self.A.dtype}
        stay, size = settings.alpha + settings.ridge, self.A.abs()
        # Directions that were left out have no equation: theirs is θ = 0, or x = 0.
        alpha = torch.diag_embed(stay + (size.sum(-2) == 0).to(self.A.dtype))
        stray = settings.penalty + settings.ridge
        penalty = torch.diag_embed(stray + (size.sum(-1) == 0).to(self.A.dtype))
        n, zero, one = self.mean.unsqueeze(-1), torch.zeros(K, l, 1, **like), torch.ones(K, 1, 1, **like)
        rows = [
            torch.cat([alpha, -self.A.mT, settings.mass * n], dim=-1),
            torch.cat([self.A, penalty, zero], dim=-1),
            torch.cat([n.mT, zero.mT, 0 * one if settings.mass and stray else -one], dim=-1),
        ]
        first = stay * self.base + (0.0 if self.reward is None else self.reward)
        right = torch.cat([first.unsqueeze(-1), self.b.unsqueeze(-1), one], dim=-2)
        return torch.linalg.solve(torch.cat(rows, dim=-2), right)[:, :m].squeeze(-1)


def by_dice(problem: ValueProblem, z: Tensor, settings: DICESettings) -> ValueEstimate:
    """The value of latents ``[K, d]`` by the ratio that a member of the family learns for each of them."""
    seed = int(torch.randint(2**62, (), generator=problem.random()))
    samples = 0 if problem.transitions is None else len(problem.transitions.obs)
    columns = 2 * max(settings.hidden, problem.model.z_dim)
    return joined([_evaluate(problem, part, settings, seed) for part in latent_chunks(samples, columns, z)])


def _evaluate(problem: ValueProblem, z: Tensor, settings: DICESettings, seed: int) -> ValueEstimate:
    steps = Steps.of(problem, z)
    own = FlowEquations.of(*value_features(problem.model, steps, z), steps.discount, steps.gamma)
    whole = bool((steps.discount == steps.gamma).all())  # no episode ends, so that a ratio has mass one
    base = torch.ones_like(own.phi[..., 0])
    if settings.warm:
        base = (own.phi @ own.dual(own.choose()[0]).unsqueeze(-1)).squeeze(-1)
    base = base.to(steps.obs.dtype)
    if not whole:
        settings = settings.updated(mass=0.0)
    tasks = list(steps.rewards.split(1)) if settings.reward else [steps.rewards[:0]]
    ratios = []  # of every task, or one for all of them
    for reward in tasks:
        generator = torch.Generator().manual_seed(seed)
        pairs = Pairs.of(replace(steps, rewards=reward), settings)
        saddle = _Saddle(pairs, base, settings, generator)
        if settings.layers:
            with torch.enable_grad():
                saddle.train_networks(problem.progress)
        ratios.append(saddle.ratio())
    w = torch.stack(ratios, dim=-1)  # [K, P, N, T or 1]
    mean = w.mean(1)  # [K, N, T or 1]
    r, n = steps.rewards.mT, mean.shape[1]
    mass = w.mean(2) if whole else torch.ones_like(w[:, :, 0])
    usable = mass.abs() > 1e-6
    of_members = (w * r).mean(2) / torch.where(usable, mass, 1.0)  # [K, P, T]
    value, doubt = of_members.mean(1), of_members.std(1)
    # The delta method for a mean of w r, or for one in which w is divided by its mean.
    by_row = (mean * (r - value.unsqueeze(1) if whole else r)).std(1) / n**0.5
    one = mean.mean(-1)
    diagnostics = measure.diagnose(one, one) | {"flow_residual": own.violation(one).to(one.dtype)}
    error = (by_row.square() + doubt.square()).sqrt()
    return ValueEstimate(value, error, diagnostics | {"doubt": doubt}, weights=one)


class _Saddle(nn.Module):
    """The networks ζ and g of K·P problems, and the multipliers u."""

    def __init__(
        self, pairs: Pairs, base: Tensor, settings: DICESettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.pairs, self.settings, self.generator = pairs, settings, generator
        self.base = base.repeat_interleave(pairs.members, dim=0)  # what ζ begins with, [K·P, N]
        inputs, dtype = pairs.here.shape[-1], pairs.here.dtype
        self.zeta = Networks(inputs, 1, pairs.problems, settings, generator).to(dtype)
        self.g = Networks(inputs, 1, pairs.problems, settings, generator).to(dtype)
        self.u = nn.Parameter(torch.zeros(len(self.base), dtype=dtype))

    def value(self, x: Tensor) -> Tensor:
        """g ``[K·P, n]``, which begins with zero."""
        y: Tensor = self.g(x).squeeze(-1)
        return y

    def lagrangian(self, rows: Tensor) -> Tensor:
        """The function of the saddle point on some transitions ``[n]``, ``[K·P]``."""
        pairs, settings = self.pairs, self.settings
        here = pairs.here[rows]
        moved = self.zeta(here).squeeze(-1)  # ζ − ζ0
        zeta = self.base[:, rows] + moved
        g, later = self.value(here), self.value(pairs.after(rows))
        start = (1.0 - pairs.gamma) * self.value(pairs.starts()).mean(-1)
        L = start - (zeta * (g - pairs.discount[rows] * later)).mean(-1)
        if settings.alpha:
            L = L + 0.5 * settings.alpha * moved.square().mean(-1)
        if settings.reward:
            L = L - (zeta * pairs.rewards[0, rows]).mean(-1)
        if settings.penalty:
            L = L - 0.5 * settings.penalty * g.square().mean(-1)
        if settings.mass:
            L = L + settings.mass * (self.u * (zeta.mean(-1) - 1.0) - 0.5 * self.u.square())
        return L

    def train_networks(self, progress: Progress | None) -> None:
        """Descend in ζ and ascend in g and u, together."""
        down = torch.optim.Adam(self.zeta.parameters(), lr=self.settings.learning_rate)
        up = torch.optim.Adam([*self.g.parameters(), self.u], lr=self.settings.learning_rate, maximize=True)
        for _ in schedule([down, up], self.settings, progress, f"DICE, latents: {self.pairs.problems}"):
            rows = self.pairs.draw(self.settings.batch, self.generator)
            down.zero_grad()
            up.zero_grad()
            self.lagrangian(rows).sum().backward()
            down.step()
            up.step()

    @torch.no_grad()
    def ratio(self) -> Tensor:
        """ζ of all transitions ``[K, P, N]``, after the last layers were solved for."""
        pairs = self.pairs
        zeta = torch.cat([self.zeta.features(pairs.here), self.base.unsqueeze(-1)], dim=-1).double()
        g, later, start = (self.g.features(x).double() for x in (pairs.here, pairs.after(), pairs.starts()))
        (W, _), (V, _) = orthonormal(zeta), orthonormal(g)
        phi, change = zeta @ W, (g - pairs.discount.unsqueeze(-1) * later) @ V
        n = len(pairs.here)
        saddle = LinearSaddle(
            change.mT @ phi / n,
            (1.0 - pairs.gamma) * (start.mean(-2, keepdim=True) @ V).squeeze(-2),
            phi.mean(-2),
            (self.base.double().unsqueeze(-2) @ phi).squeeze(-2) / n,
            pairs.rewards[0].double() @ phi / n if self.settings.reward else None,
        )
        w = (phi @ saddle.ratio(self.settings).unsqueeze(-1)).squeeze(-1)
        return w.reshape(pairs.problems, pairs.members, -1).to(pairs.here.dtype)
