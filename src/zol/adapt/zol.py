r"""ZOL: search the latents of a frozen model for the best off-policy return (the paper's algorithm).

For each latent z the ratio w_z of its occupancy to the data is read off the model (zol.measure), and

    J(z)     = mean_i w_i(z) (r_i − r̄)                            off-policy return, rewards centred
    L(z)     = J(z) − λ_χ mean_i (w_i − 1)² − λ_z ‖Π(z) − Π(z0)‖²
    z        ← Π( Adam(z, ∇L) ),        gradients through π_z and F, from cached start states

is climbed for T steps; the z with the best L, of all that were scored, is returned. Everything is
batched: rows are configurations × tasks, z is [C·T, d], and hyperparameters are tensors over rows, so a
sweep is one run (zol.adapt.ascent) in which work that rows share is done once.

Defaults are the paper's. Its authors' code differs in places; those variants are options by name, and
:data:`AUTHORS` collects them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from zol import measure, prompt
from zol.adapt.ascent import Search, climb
from zol.adapt.result import Adapted
from zol.common.config import Config, ConfigError
from zol.evidence import Evidence
from zol.models.base import Model, identity
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
    rows_at_once: int = 16,
    trace: bool = True,
) -> Adapted:
    """Adapt latents ``[T, d]`` (one per task of the evidence) under one or many configurations.

    ``rows_at_once`` bounds memory: rows are independent, so the result does not depend on it.
    ``generator`` is used only where states are drawn from the sample (``mu_states``, ``top_reward_share``).
    ``trace=False`` leaves out the diagnostics of every step, which a large sweep need not pay for.
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
    settings = {name: _per_row(configs, name, tasks, start) for name in PER_ROW}

    def search(rows: Tensor, **changed: Tensor) -> Search:
        """The searches of some rows; row c·T + t is configuration c on task t."""
        t = rows % tasks
        return Search(
            model,
            features,
            evidence.rewards[t],
            states if states.ndim == 2 else states[t],
            model.project(start[t]).detach(),
            configs[0],
            {name: values[rows] for name, values in settings.items()} | changed,
        )

    with frozen(model) if isinstance(model, torch.nn.Module) else nullcontext():
        z, told = _climb_all(search, settings, tasks, rows_at_once, trace)
        every = torch.arange(len(z), device=start.device).split(rows_at_once)
        scored = [search(part).score(z[part]) for part in every]
    shape = (len(configs), tasks)
    scores = {name: torch.cat([s[name] for s in scored]).reshape(shape) for name in scored[0]}
    at_start = prompt.start_rewards(model, evidence.obs, evidence.rewards, evidence.starts).mean(-1)  # [T]
    return Adapted(
        z=z.reshape(*shape, -1),
        start=model.project(start),
        method="zol",
        configs=tuple(c.model_dump() for c in configs),
        evidence=evidence,
        model_identity=identity(model),
        estimate=measure.next_state_return(model, scores.pop("estimate"), at_start),
        diagnostics=scores,
        trace={name: values.reshape(len(values), *shape) for name, values in told.items()},
    )


def _climb_all(
    search: Callable[..., Search],
    settings: Mapping[str, Tensor],
    tasks: int,
    rows_at_once: int,
    trace: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The best latent of every row ``[R, d]`` and the traces ``[steps, R]``; shared paths are climbed once.

    Rows that differ only in how far they go, or in a clip that turns out never to bite, follow the same path
    to the last bit. Each path is climbed to its longest row under its loosest clip; a row whose own clip
    would have bitten on the way waits for the next round.
    """
    steps, clips = settings["steps"].tolist(), settings["clip"].tolist()
    found: dict[int, Tensor] = {}
    told: dict[str, dict[int, Tensor]] = {}
    waiting = list(range(len(steps)))
    while waiting:
        paths = _paths(waiting, settings, tasks)
        waiting = []
        for begin in range(0, len(paths), rows_at_once):
            part = paths[begin : begin + rows_at_once]
            device = settings["clip"].device
            leaders = torch.tensor([max(path, key=lambda row: clips[row]) for path in part], device=device)
            longest = torch.tensor([max(steps[row] for row in path) for path in part], device=device)
            stops = {steps[row] for path in part for row in path}
            snapshots, seen = climb(search(leaders, steps=longest), stops, trace)
            for k, path in enumerate(part):
                for row in path:
                    snapshot = snapshots[steps[row]]
                    if clips[row] < clips[leaders[k]] and float(snapshot.peak[k]) > clips[row]:
                        waiting.append(row)
                        continue
                    found[row] = snapshot.z[k]
                    for name, values in seen.items():
                        told.setdefault(name, {})[row] = values[: steps[row] + 1, k]
    length = max((len(values) for rows in told.values() for values in rows.values()), default=0)
    traces = {
        name: torch.stack([_padded(rows[row], length) for row in range(len(steps))], dim=1)
        for name, rows in told.items()
    }
    return torch.stack([found[row] for row in range(len(steps))]), traces


def _paths(rows: Sequence[int], settings: Mapping[str, Tensor], tasks: int) -> list[list[int]]:
    """Rows grouped by what decides their path: the task and all settings but step count and clip."""
    deciding = [values.tolist() for name, values in settings.items() if name not in ("steps", "clip")]
    paths: dict[tuple[float, ...], list[int]] = {}
    for row in rows:
        paths.setdefault((row % tasks, *(values[row] for values in deciding)), []).append(row)
    return list(paths.values())


def _padded(values: Tensor, length: int) -> Tensor:
    """A trace ``[steps]`` with NaN after its end."""
    return torch.cat([values, values.new_full((length - len(values),), torch.nan)])


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
