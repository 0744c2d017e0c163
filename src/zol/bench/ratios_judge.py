"""Which latents estimators are judged on, and how well one estimator did on one task of one model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from zol.adapt.problem import Problem
from zol.bench.conditions import BenchedModel
from zol.bench.occupancy import overlap, supported
from zol.bench.ranking import NEAR, STEP, spearman
from zol.bench.ratios_controls import ROLLOUTS, Estimated
from zol.bench.true_behaviour import TrueBehaviour
from zol.report import Interval, bootstrap

RANDOM = 4
FEW_TASKS, FEW_MOVES = 1, 4  # what is left for estimators that train networks per latent
POOLS = ALL, FEW = "all", "few"


@dataclass(frozen=True)
class Pool:
    """Latents ``[K, d]``, and which are near each task's prompt ``[T, 1 + NEAR]``, the prompt first."""

    z: Tensor
    near: Tensor

    def few(self) -> tuple["Pool", Tensor]:
        """Prompt and some moves of the first task, and the other tasks' prompts; and which rows they are.

        Learning a ratio takes seconds per latent. All estimators are compared on these latents, and those
        that take milliseconds on the others, too.
        """
        near = self.near[:FEW_TASKS, : 1 + FEW_MOVES]
        rows = torch.cat([near.flatten(), self.near[FEW_TASKS:, 0]])
        return Pool(self.z[rows], torch.arange(near.numel()).reshape(near.shape)), rows


def pool(problem: Problem) -> Pool:
    """Every task's prompt and random moves of it, then random latents."""
    model, generator = problem.model, problem.generator("ratios")
    z0 = problem.start.unsqueeze(1)  # [T, 1, d]
    noise = torch.randn(len(z0), NEAR, model.z_dim, generator=generator)
    random = torch.randn(RANDOM, model.z_dim, generator=generator)
    near = torch.cat([z0, model.project(z0 + STEP * noise)], dim=1)
    numbers = torch.arange(near.shape[0] * near.shape[1]).reshape(near.shape[:2])
    return Pool(torch.cat([near.flatten(0, 1), model.project(random)]), numbers)


@dataclass(frozen=True)
class Judgement:
    """How well one estimator did on one task of one model; in reward per step."""

    domain: str
    seed: int
    model: str
    task: str
    pool: str  # of which latents: all, or the few that estimators that learn are judged on, too
    estimator: str
    overlap: float | None  # near the prompt; None for estimators without weights
    support: float | None  # the most that any weights on the model's sample could overlap
    spearman_global: float
    spearman_near: float
    regret: float
    plain_regret: float  # of the prompt
    bias: float
    mean_abs_error: float
    coverage: float
    spearman_global_undiscounted: float  # the same against undiscounted returns
    spearman_near_undiscounted: float
    regret_undiscounted: float
    seconds: float  # CPU seconds per latent
    off_near: tuple[float, ...] = ()  # true minus estimated, of the prompt and its moves in their order


def judge(
    subject: BenchedModel,
    latents: Pool,
    truth: TrueBehaviour,
    found: Mapping[str, Estimated],
    sample: Tensor | None,
    which: str = ALL,
) -> list[Judgement]:
    """One line per task and estimator; ``sample`` is the histogram of the model's own sample ``[cells]``.

    ``which`` names the pool that the latents are; their tasks are the first of the model's.
    """
    half = truth.discounted.shape[-1] // 2
    lines = []
    for name, estimated in found.items():
        # Half of the rollouts are judged by the other half, everything else by all.
        part = slice(half, None) if name == ROLLOUTS else slice(None)
        discounted = truth.discounted[..., part].mean(-1)  # [K, T]
        undiscounted = truth.undiscounted[..., part].mean(-1)
        where = truth.occupancy[1] if name == ROLLOUTS else truth.where
        met = _met(where, estimated.occupancy)
        value = estimated.value
        for t, task in enumerate(subject.evidence.tasks[: len(latents.near)]):
            guess, own = value.mean[:, t].double(), latents.near[t]
            real, plain = discounted[:, t], undiscounted[:, t]
            inside = (real >= value.low[:, t]) & (real <= value.high[:, t])
            choice = own[guess[own].argmax()]
            lines.append(
                Judgement(
                    domain=subject.domain,
                    seed=subject.pretraining_seed,
                    model=subject.identity,
                    task=task,
                    pool=which,
                    estimator=name,
                    overlap=None if met is None else _mean(met[own]),
                    support=None if sample is None else float(supported(where, sample)[own].mean()),
                    spearman_global=spearman(guess, real),
                    spearman_near=spearman(guess[own], real[own]),
                    regret=float(real[own].max() - real[choice]),
                    plain_regret=float(real[own].max() - real[own[0]]),
                    bias=float((guess - real).mean()),
                    mean_abs_error=float((guess - real).abs().mean()),
                    coverage=float(inside.double().mean()),
                    spearman_global_undiscounted=spearman(guess, plain),
                    spearman_near_undiscounted=spearman(guess[own], plain[own]),
                    regret_undiscounted=float(plain[own].max() - plain[choice]),
                    seconds=estimated.seconds / len(latents.z),
                    off_near=tuple(round(off, 5) for off in (real - guess)[own].tolist()),
                )
            )
    return lines


def _met(where: Tensor, occupancy: Tensor | None) -> Tensor | None:
    """The overlaps ``[K]``; NaN where all weights are zero, as those of shrunk corrections may be."""
    if occupancy is None:
        return None
    return torch.where(occupancy.sum(-1) > 0, overlap(where, occupancy), torch.nan)


def _mean(values: Tensor) -> float | None:
    """The mean of the numbers among values; None if there are none."""
    known = values[~values.isnan()]
    return float(known.mean()) if len(known) else None


def interval(lines: Sequence[Judgement], field: str) -> Interval | None:
    """The mean of a field over the seeds and tasks that all have it, with its interval; None without any."""
    by_seed: dict[str, dict[str, float]] = {}
    for line in lines:
        value = getattr(line, field)
        if value is not None:
            by_seed.setdefault(line.model, {})[f"{line.domain} {line.task}"] = float(value)
    rows = list(by_seed.values())
    shared = [task for task in (rows[0] if rows else {}) if all(task in row for row in rows)]
    if not shared:
        return None
    return bootstrap(np.array([[[row[task] for task in shared]] for row in rows]))
