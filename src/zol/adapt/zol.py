r"""ZOL: search the latents of a frozen model for the best off-policy return (the paper's algorithm).

For each latent z the ratio w_z of its occupancy to the data is read off the model (zol.measure), and

    J(z)     = mean_i w_i(z) (r_i − r̄)                            off-policy return, rewards centred
    L(z)     = J(z) − λ_χ mean_i (w_i − 1)² − λ_z ‖Π(z) − Π(z0)‖²
    z        ← Π( Adam(z, ∇L) ),        gradients through π_z and F, from cached start states

is climbed for T steps; the z with the best L, of all that were scored, is returned. Everything is
batched: rows are configurations × tasks, z is [C·T, d], and hyperparameters are tensors over rows, so a
sweep is one run whose rows are independent of each other (Adam, clipping and stopping act per row).

Defaults are the paper's. Its authors' code differs in places; those variants are options by name, and
:data:`AUTHORS` collects them.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from zol import measure, prompt
from zol.adapt.base import Adapted, Evidence, identity
from zol.config import Config, ConfigError
from zol.models.base import Model
from zol.models.learning import frozen


class ZOLConfig(Config):
    """Settings of the search. Numeric ones may differ between the rows of a sweep; named ones may not."""

    learning_rate: float = Field(default=5e-4, gt=0)
    """η of Adam"""
    steps: int = Field(default=200, ge=0)
    """T"""
    chi_square: float = Field(default=0.001, ge=0)
    """λ_χ, weight of the ratio-variance penalty"""
    trust: float = Field(default=0.02, ge=0)
    """λ_z, weight of the trust region around Π(z0)"""
    clip: float = Field(default=100.0, gt=0)
    """w_max, largest weight"""
    grad_clip: float = Field(default=0.0, ge=0)
    """clip the gradient of each latent to this norm; 0 leaves it as it is"""
    patience: int = Field(default=0, ge=0)
    """stop a row after this many steps without a better objective; 0 never stops early"""

    centre_rewards: bool = True
    """subtract the mean reward of the sample"""
    shaping: measure.Shaping = "softplus"
    """how ratios become positive (authors: exp)"""
    sharpness: float = Field(default=1.0, gt=0)
    """k of softplus and exp"""
    clip_then_renormalise: bool = False
    """divide by the mean again after clipping (authors)"""
    self_normalised: bool = False
    """J = Σwr/Σw instead of mean(wr) (authors)"""
    trust_norm: Literal["squared", "mean"] = "squared"
    """‖·‖², or its mean over d (authors): λ_z then weighs d times less"""
    mu_states: Literal["start", "batch", "mix"] = "start"
    """states that μ averages over: start states, sampled data (authors), or half of each"""
    top_reward_share: float = Field(default=0.0, ge=0, le=1)
    """add up to a quarter more μ states from this share of highest rewards (authors: 0.05 at times)"""


AUTHORS = ZOLConfig(
    learning_rate=3e-3,
    steps=500,
    chi_square=0.01,
    trust=0.001,
    clip=20.0,
    patience=500,
    shaping="exp",
    clip_then_renormalise=True,
    self_normalised=True,
    trust_norm="mean",
    mu_states="batch",
)
"""The defaults of the authors' public code, as far as they differ from the paper."""

PER_ROW = ("learning_rate", "chi_square", "trust", "clip", "grad_clip", "steps", "patience")


def zol(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    config: ZOLConfig | Sequence[ZOLConfig] | None = None,
    *,
    generator: torch.Generator | None = None,
    rows_at_once: int = 64,
) -> Adapted:
    """Adapt latents ``[T, d]`` (one per task of the evidence) under one or many configurations.

    ``rows_at_once`` bounds memory: rows are independent, so the result does not depend on it.
    ``generator`` is used only where states are drawn from the sample (``mu_states``, ``top_reward_share``).
    """
    configs = tuple([config or ZOLConfig()] if config is None or isinstance(config, Config) else config)
    _same_named_options(configs)
    tasks, d = start.shape
    if (tasks, d) != (len(evidence.tasks), model.z_dim):
        raise ConfigError(
            f"start latents have shape {(tasks, d)}; {len(evidence.tasks)} tasks of a model with "
            f"z_dim {model.z_dim} need {(len(evidence.tasks), model.z_dim)}"
        )
    features = prompt.backward_features(model, evidence.obs)
    states = _mu_states(evidence, configs[0], generator)
    task_of_row = torch.arange(tasks, device=start.device).repeat(len(configs))
    rows = {name: _per_row(configs, name, tasks, start) for name in PER_ROW}
    found = []
    with frozen(model) if isinstance(model, torch.nn.Module) else nullcontext():
        for part in torch.arange(len(task_of_row)).split(rows_at_once):
            t = task_of_row[part]
            problem = _Problem(
                model,
                features,
                evidence.rewards[t],
                states if states.ndim == 2 else states[t],
                model.project(start[t]).detach(),
                configs[0],
                {name: values[part] for name, values in rows.items()},
            )
            found.append(_climb(problem))
    return _gather(model, evidence, start, configs, found)


@dataclass(frozen=True)
class _Problem:
    """R independent searches: rows are pairs of a configuration and a task."""

    model: Model
    features: Tensor  # B(s_i), [N, d]
    rewards: Tensor  # [R, N]
    states: Tensor  # [S, D] or [R, S, D]
    start: Tensor  # Π(z0), [R, d]
    options: ZOLConfig
    rows: Mapping[str, Tensor]  # each [R]

    def score(self, z: Tensor) -> dict[str, Tensor]:
        """The objective of latents ``[R, d]`` and everything it is made of, each ``[R]``."""
        o = self.options
        mu = measure.forward_mean(self.model, self.states, z)
        raw = measure.raw_ratio(self.model, mu, self.features)
        w = measure.shape_weights(
            raw,
            o.shaping,
            sharpness=o.sharpness,
            clip=self.rows["clip"].unsqueeze(-1),
            renormalise=o.clip_then_renormalise,
        )
        mean_reward = self.rewards.mean(-1)
        centred = self.rewards - mean_reward.unsqueeze(-1) if o.centre_rewards else self.rewards
        gain = (w * centred).mean(-1)
        if o.self_normalised:
            gain = gain / w.mean(-1).clamp_min(1e-8)
        chi = measure.chi_square(w)
        moved = (self.model.project(z) - self.start).square()
        trust = moved.sum(-1) if o.trust_norm == "squared" else moved.mean(-1)
        objective = gain - self.rows["chi_square"] * chi - self.rows["trust"] * trust
        with torch.no_grad():
            distance = moved.sum(-1).sqrt() / self.start.norm(dim=-1)
            estimate = (w * self.rewards).mean(-1) / w.mean(-1).clamp_min(1e-8)
            extra = measure.diagnose(raw, w) | {"distance": distance, "estimate": estimate}
        return {"objective": objective, "gain": gain, "trust": trust} | extra


def _climb(problem: _Problem) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """Adam ascent of every row; the best latent by objective, its scores, and the trace of all steps."""
    p = problem.rows
    z = problem.start.clone()
    first, second = torch.zeros_like(z), torch.zeros_like(z)
    best_z = z.clone()
    best: dict[str, Tensor] = {}
    since_best = torch.zeros_like(p["steps"])
    trace: dict[str, list[Tensor]] = {}
    running = torch.ones_like(p["steps"], dtype=torch.bool)
    for step in range(int(p["steps"].max()) + 1):
        z.requires_grad_(True)
        scores = problem.score(z)
        (gradient,) = torch.autograd.grad(scores["objective"].sum(), z)
        z = z.detach()
        scores = {name: value.detach() for name, value in scores.items()}
        for name, value in scores.items():
            trace.setdefault(name, []).append(torch.where(running, value, torch.nan))
        better = running & (scores["objective"] > best["objective"]) if best else running.clone()
        best_z = torch.where(better.unsqueeze(-1), z, best_z)
        best = {k: torch.where(better, v, best[k]) for k, v in scores.items()} if best else scores
        since_best = torch.where(better, 0, since_best + 1)
        # A row that took `steps` steps has been scored steps + 1 times: the last z counts as well.
        running = running & (step < p["steps"]) & ((p["patience"] == 0) | (since_best < p["patience"]))
        if not bool(running.any()):
            break
        size = gradient.norm(dim=-1).clamp_min(1e-30)
        shrink = torch.where(p["grad_clip"] > 0, (p["grad_clip"] / size).clamp_max(1.0), 1.0)
        moved, first, second = _adam(z, gradient * shrink.unsqueeze(-1), first, second, step + 1, p)
        z = torch.where(running.unsqueeze(-1), problem.model.project(moved), z)
    return best_z, best, {name: torch.stack(values) for name, values in trace.items()}


def _adam(
    z: Tensor, gradient: Tensor, first: Tensor, second: Tensor, count: int, rows: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """One ascent step with torch's default moments; the learning rate differs between rows."""
    first = first.lerp(gradient, 1 - 0.9)
    second = second.lerp(gradient.square(), 1 - 0.999)
    mean = first / (1 - 0.9**count)
    deviation = (second / (1 - 0.999**count)).sqrt() + 1e-8
    return z + rows["learning_rate"].unsqueeze(-1) * mean / deviation, first, second


def _mu_states(evidence: Evidence, options: ZOLConfig, generator: torch.Generator | None) -> Tensor:
    """States that μ averages over: ``[S, D]``, or ``[T, S, D]`` when high-reward states are added."""
    count = len(evidence.starts)
    needs_draw = options.mu_states != "start" or options.top_reward_share > 0
    if needs_draw and generator is None:
        raise ConfigError("these mu_states are drawn from the sample: pass generator=torch.Generator()")
    states = evidence.starts
    if options.mu_states != "start":
        drawn = evidence.obs[torch.randint(len(evidence.obs), (count,), generator=generator)]
        half = count // 2
        states = drawn if options.mu_states == "batch" else torch.cat([states[:half], drawn[half:]])
    if options.top_reward_share == 0:
        return states
    top = max(1, int(options.top_reward_share * len(evidence.obs)))
    best = evidence.rewards.topk(top, dim=-1).indices  # [T, top]
    pick = torch.randint(top, (max(1, count // 4),), generator=generator)
    extra = evidence.obs[best[:, pick]]  # [T, count/4, D]
    return torch.cat([states.expand(len(best), -1, -1), extra], dim=1)


def _per_row(configs: Sequence[ZOLConfig], name: str, tasks: int, like: Tensor) -> Tensor:
    values = torch.tensor([getattr(c, name) for c in configs], device=like.device)
    return values.to(like.dtype if values.is_floating_point() else torch.int64).repeat_interleave(tasks)


def _same_named_options(configs: Sequence[ZOLConfig]) -> None:
    named = [c.model_dump(exclude=set(PER_ROW)) for c in configs]
    for other in named[1:]:
        for key, value in named[0].items():
            if other[key] != value:
                raise ConfigError(
                    f"the rows of one sweep share '{key}', got {value!r} and {other[key]!r}: "
                    f"run them as two sweeps (rows may differ in {', '.join(PER_ROW)})"
                )


def _gather(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    configs: tuple[ZOLConfig, ...],
    found: Sequence[tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]],
) -> Adapted:
    shape = (len(configs), len(evidence.tasks))
    scores = {name: torch.cat([best[name] for _, best, _ in found]).reshape(shape) for name in found[0][1]}
    steps = max(len(trace["objective"]) for _, _, trace in found)

    def full(values: Tensor) -> Tensor:
        missing = torch.full((steps - len(values), values.shape[1]), torch.nan, dtype=values.dtype)
        return torch.cat([values, missing.to(values.device)])

    trace = {
        name: torch.cat([full(part[name]) for _, _, part in found], dim=1).reshape(steps, *shape)
        for name in found[0][2]
    }
    return Adapted(
        z=torch.cat([z for z, _, _ in found]).reshape(*shape, -1),
        start=model.project(start),
        method="zol",
        configs=tuple(c.model_dump() for c in configs),
        evidence=evidence,
        model_identity=identity(model),
        estimate=scores.pop("estimate"),
        diagnostics=scores,
        trace=trace,
    )
