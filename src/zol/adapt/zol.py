r"""ZOL: search the latents of a frozen model for the best off-policy return (the paper's algorithm).

For each latent z the ratio w_z of its occupancy to the data is read off the model (zol.measure), and

    J(z)     = mean_i w_i(z) (r_i − r̄)                            off-policy return, rewards centred
    L(z)     = J(z) − λ_χ mean_i (w_i − 1)² − λ_z ‖Π(z) − Π(z0)‖²
    z        ← Π( Adam(z, ∇L) ),        gradients through Π, π_z and F, from cached start states

is climbed for T steps; the z with the best L, of all that were scored, is returned. w is that of Π(z), so the
search is one over directions: L does not depend on ‖z‖ (zol.adapt.ascent).

Everything is batched: rows are configurations × tasks, z is [C·T, d], and hyperparameters are tensors over
rows, so a sweep is one run in which work that rows share is done once.

Defaults are the paper's. Its authors' code differs in places; those variants are options by name, and
:data:`~zol.adapt.zol_settings.AUTHORS` collects them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from rich.progress import Progress
from torch import Tensor

from zol import measure, prompt
from zol.adapt.ascent import Ascent, climb
from zol.adapt.paper_settings import best_on_test_returns
from zol.adapt.problem import Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol_settings import AUTHORS, PER_ROW, ZOLConfig
from zol.common.config import Config, ConfigError
from zol.evidence import Evidence
from zol.models.base import Model, identity
from zol.models.optimisation import frozen


def zol_search(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    config: ZOLConfig | Sequence[ZOLConfig] | None = None,
    *,
    generator: torch.Generator | None = None,
    rows_at_once: int = 16,
    trace: bool = True,
    progress: Progress | None = None,
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

    def ascent(rows: Tensor, **changed: Tensor) -> Ascent:
        """The searches of some rows; row c·T + t is configuration c on task t."""
        t = rows % tasks
        return Ascent(
            model,
            features,
            evidence.rewards[t],
            states if states.ndim == 2 else states[t],
            model.project(start[t]).detach(),
            configs[0],
            {name: values[rows] for name, values in settings.items()} | changed,
        )

    with frozen(model) if isinstance(model, torch.nn.Module) else nullcontext():
        z, told = _Paths(ascent, settings, tasks, trace, progress).climb_all(rows_at_once)
        every = torch.arange(len(z), device=start.device).split(rows_at_once)
        scored = [ascent(part).score(z[part]) for part in every]
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


def score(model: Model, evidence: Evidence, z: Tensor) -> Adapted:
    """Latents ``[T, d]`` as they are, with the ratio's estimate and diagnostics of each."""
    return zol_search(model, evidence, z, ZOLConfig(steps=0, trust_region=0.0))


@dataclass
class _Paths:
    """Climbs every row of a sweep; what rows share is climbed once.

    Rows that differ only in how far they go, or in a clip that turns out never to bite, follow the same path
    to the last bit. Each path is climbed to its longest row under its loosest clip; a row whose own clip
    would have bitten on the way waits for the next round.
    """

    ascent: Callable[..., Ascent]
    settings: Mapping[str, Tensor]
    tasks: int
    trace: bool
    progress: Progress | None
    found: dict[int, Tensor] = field(default_factory=dict)  # row → its best latent
    told: dict[str, dict[int, Tensor]] = field(default_factory=dict)  # diagnostic → row → its trace

    def climb_all(self, rows_at_once: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The best latent of every row ``[R, d]`` and the traces ``[steps, R]``."""
        rows = range(len(self.settings["steps"]))
        waiting = list(rows)
        while waiting:
            paths = self._grouped(waiting)
            parts = [paths[begin : begin + rows_at_once] for begin in range(0, len(paths), rows_at_once)]
            waiting = [row for part in parts for row in self._climb(part)]
        length = max((len(values) for own in self.told.values() for values in own.values()), default=0)
        traces = {
            name: torch.stack([_padded(own[row], length) for row in rows], dim=1)
            for name, own in self.told.items()
        }
        return torch.stack([self.found[row] for row in rows]), traces

    def _grouped(self, rows: Sequence[int]) -> list[list[int]]:
        """Rows grouped by what decides their path: the task and all settings but step count and clip."""
        deciding = [
            values.tolist() for name, values in self.settings.items() if name not in ("steps", "clip")
        ]
        paths: dict[tuple[float, ...], list[int]] = {}
        for row in rows:
            paths.setdefault((row % self.tasks, *(values[row] for values in deciding)), []).append(row)
        return list(paths.values())

    def _climb(self, paths: Sequence[Sequence[int]]) -> list[int]:
        """Climb some paths as one batch; the rows that must be climbed again under their own clip."""
        steps, clips = self.settings["steps"].tolist(), self.settings["clip"].tolist()
        device = self.settings["clip"].device
        leaders = [max(path, key=lambda row: clips[row]) for path in paths]
        longest = torch.tensor([max(steps[row] for row in path) for path in paths], device=device)
        ascent = self.ascent(torch.tensor(leaders, device=device), steps=longest)
        stops = {steps[row] for path in paths for row in path}
        snapshots, seen = climb(ascent, stops, self.trace, self.progress)
        waiting = []
        for k, row in ((k, row) for k, path in enumerate(paths) for row in path):
            snapshot = snapshots[steps[row]]
            if clips[row] < clips[leaders[k]] and float(snapshot.peak[k]) > clips[row]:
                waiting.append(row)
                continue
            self.found[row] = snapshot.z[k]
            for name, values in seen.items():
                self.told.setdefault(name, {})[row] = values[: steps[row] + 1, k]
        return waiting


def _padded(values: Tensor, length: int) -> Tensor:
    """A trace ``[steps]`` with NaN after its end."""
    return torch.cat([values, values.new_full((length - len(values),), torch.nan)])


def _mu_states(evidence: Evidence, options: ZOLConfig, generator: torch.Generator | None) -> Tensor:
    """States that μ averages over: ``[S, D]``, or ``[T, S', D]`` when high-reward states are added."""
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
    # min(top, S/4) of them, each at most once: a state that is drawn twice adds nothing but its weight
    pick = torch.randperm(top, generator=generator)[: max(1, count // 4)]
    extra = evidence.obs[best[:, pick]]  # [T, min(top, S/4), D]
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


def search(problem: Problem, config: ZOLConfig) -> Adapted:
    """ZOL from plain FB's latents, with the same settings for every task."""
    generator = problem.generator("zol")
    return zol_search(
        problem.model,
        problem.evidence,
        problem.start,
        config,
        generator=generator,
        progress=problem.progress,
    )


def search_as_in_paper(problem: Problem, settings: NoSettings) -> Adapted:
    """ZOL with the paper's own settings of each task, and at most as many start states as it takes."""
    evidence, start = problem.evidence, problem.start
    where = problem.dataset or problem.domain
    configs, found = {}, []
    for t, name in enumerate(evidence.tasks):
        configs[name], count = best_on_test_returns(where, name)
        own = evidence.only(name)
        own = replace(own, starts=own.starts[:count])
        found.append(
            zol_search(problem.model, own, start[t : t + 1], configs[name], progress=problem.progress)
        )
    return Adapted(
        z=torch.cat([one.z for one in found], dim=1),
        start=torch.cat([one.start for one in found]),
        method="zol-paper",
        configs=({name: config.model_dump() for name, config in configs.items()},),
        evidence=evidence,
        model_identity=identity(problem.model),
        estimate=torch.cat([one.estimate for one in found], dim=1),
        diagnostics={
            name: torch.cat([one.diagnostics[name] for one in found], dim=1) for name in found[0].diagnostics
        },
    )


ON_THE_SPHERE = "the correction of ZOL's search, which stays on the sphere since (docs/zol.md)"
"""What revision 2 of ZOL, and of every method that uses its latents, changed."""

ZOL = Method(search, ZOLConfig(), revision=2, correction=ON_THE_SPHERE)
ZOL_AUTHORS = Method(search, AUTHORS, revision=2, correction=ON_THE_SPHERE)
ZOL_PAPER = Method(search_as_in_paper, NoSettings(), revision=2, correction=ON_THE_SPHERE)
