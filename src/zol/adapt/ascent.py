r"""Climbing ZOL's objective: R independent searches as one batched program.

    L(z) = J(z) − λ_χ mean_i (w_i − 1)² − λ_z ‖Π(z) − Π(z0)‖²,      z ← Π( Adam(z, ∇L) )

The search lives on the sphere: F, π and with them every weight w are evaluated at Π(z), and ∇L is taken
through the projection. L does not depend on ‖z‖, so its gradient has no radial part, ⟨∇L, z⟩ = 0.

A row is one search; Adam, clipping and stopping act per row, so rows do not depend on each other. While it
climbs, a row leaves a *snapshot* at every step count that was asked for: a search of 100 steps is the first
half of one of 200. It also remembers its largest weight: a clip above that has changed nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from rich.progress import Progress
from torch import Tensor

from zol import measure
from zol.adapt.zol_settings import ZOLConfig
from zol.common.progress import Ticker
from zol.models.base import Model


@dataclass(frozen=True)
class Ascent:
    """What R rows climb."""

    model: Model
    features: Tensor  # B(s_i), [N, d]
    rewards: Tensor  # [R, N]
    states: Tensor  # [S, D] or [R, S, D]
    start: Tensor  # Π(z0), [R, d]
    options: ZOLConfig
    rows: Mapping[str, Tensor]  # numeric settings, each [R]

    @cached_property
    def wanted(self) -> Tensor:
        """Rewards as the objective takes them, centred or not, ``[R, N]``."""
        if not self.options.centre_rewards:
            return self.rewards
        return self.rewards - self.rewards.mean(-1, keepdim=True)

    def weigh(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The ratio of latents ``[R, d]`` before and after shaping, ``[R, N]``, both at Π(z)."""
        o = self.options
        mu = measure.forward_mean(self.model, self.states, self.model.project(z))
        raw = measure.raw_ratio(self.model, mu, self.features)
        clip, again = self.rows["clip"].unsqueeze(-1), o.clip_then_renormalise
        return raw, measure.shape_weights(raw, o.shaping, sharpness=o.sharpness, clip=clip, renormalise=again)

    def terms(self, z: Tensor, w: Tensor) -> dict[str, Tensor]:
        """The objective and its parts, each ``[R]``."""
        o = self.options
        gain = (w * self.wanted).mean(-1)  # J
        if o.self_normalised:
            gain = gain / w.mean(-1).clamp_min(1e-8)
        moved = (self.model.project(z) - self.start).square()
        trust_region = moved.sum(-1) if o.trust_region_norm == "squared" else moved.mean(-1)
        chi = measure.chi_square(w)
        objective = gain - self.rows["chi_square"] * chi - self.rows["trust_region"] * trust_region
        return {"objective": objective, "gain": gain, "trust_region": trust_region}

    @torch.no_grad()
    def score(self, z: Tensor) -> dict[str, Tensor]:
        """The objective of latents ``[R, d]`` and everything worth knowing about them, each ``[R]``."""
        return self._describe(z, *self.weigh(z))

    @torch.no_grad()
    def _describe(self, z: Tensor, raw: Tensor, w: Tensor) -> dict[str, Tensor]:
        distance = (self.model.project(z) - self.start).norm(dim=-1) / self.start.norm(dim=-1)
        estimate = (w * self.rewards).mean(-1) / w.mean(-1).clamp_min(1e-8)
        return self.terms(z, w) | measure.diagnose(raw, w) | {"distance": distance, "estimate": estimate}

    def climb_from(self, z: Tensor, trace: bool) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """Objective ``[R]``, its gradient, the largest weight of each row, and what a trace shows."""
        with torch.enable_grad():  # callers at test time may well have switched gradients off
            z = z.detach().requires_grad_(True)
            raw, w = self.weigh(z)
            objective = self.terms(z, w)["objective"]
            (gradient,) = torch.autograd.grad(objective.sum(), z)
        told = self._describe(z.detach(), raw.detach(), w.detach()) if trace else {}
        return objective.detach(), gradient, w.detach().amax(-1), told


@dataclass(frozen=True)
class Snapshot:
    """The best latents so far."""

    z: Tensor  # [R, d]
    peak: Tensor  # largest weight seen so far, [R]


def climb(
    ascent: Ascent, stops: Collection[int], trace: bool, progress: Progress | None = None
) -> tuple[dict[int, Snapshot], dict[str, Tensor]]:
    """Adam ascent of every row: the best latents after each of ``stops`` steps, and the trace."""
    p = ascent.rows
    z = ascent.start.clone()
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    best_z, best = z, torch.full_like(z[:, 0], -torch.inf)
    peak = torch.zeros_like(best)
    since_best = torch.zeros_like(p["steps"])
    running = torch.ones_like(p["steps"], dtype=torch.bool)
    snapshots: dict[int, Snapshot] = {}
    told: dict[str, list[Tensor]] = {}
    longest = int(p["steps"].max())
    bar = Ticker(progress if longest else None, "ZOL", longest)
    for step in range(longest + 1):
        objective, gradient, largest, seen = ascent.climb_from(z, trace)
        for name, value in seen.items():
            told.setdefault(name, []).append(torch.where(running, value, torch.nan))
        better = running & (objective > best) if step else running.clone()
        best_z = torch.where(better.unsqueeze(-1), z, best_z)
        best = torch.where(better, objective, best)
        peak = torch.where(running, torch.maximum(peak, largest), peak)
        since_best = torch.where(better, 0, since_best + 1)
        if step in stops:
            snapshots[step] = Snapshot(best_z, peak)
        bar.reach(step)
        # A row that took `steps` steps has been scored steps + 1 times: the last z counts as well.
        running = running & (step < p["steps"]) & ((p["patience"] == 0) | (since_best < p["patience"]))
        if not bool(running.any()):
            break
        size = gradient.norm(dim=-1).clamp_min(1e-30)
        shrink = torch.where(p["grad_clip"] > 0, (p["grad_clip"] / size).clamp_max(1.0), 1.0)
        moved, first, second = _adam(z, gradient * shrink.unsqueeze(-1), first, second, step + 1, p)
        z = torch.where(running.unsqueeze(-1), ascent.model.project(moved), z)
    bar.finish()
    for stop in stops:  # all rows stopped earlier
        snapshots.setdefault(stop, Snapshot(best_z, peak))
    return snapshots, {name: torch.stack(values) for name, values in told.items()}


@torch.no_grad()
def _adam(
    z: Tensor, gradient: Tensor, first: Tensor, second: Tensor, count: int, rows: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """One ascent step with torch's default moments; the learning rate differs between rows."""
    first = first.lerp(gradient, 1 - 0.9)
    second = second.lerp(gradient.square(), 1 - 0.999)
    mean = first / (1 - 0.9**count)
    deviation = (second / (1 - 0.999**count)).sqrt() + 1e-8
    return z + rows["learning_rate"].unsqueeze(-1) * mean / deviation, first, second
