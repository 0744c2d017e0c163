"""ZOL whose settings are chosen offline, per task, by rehearsing what each of them finds.

The density ratio cannot choose (it misjudges latents that are near each other, docs/offline-models.md), and
test returns must not. So every setting's latent, and the prompt itself, is played in the learned world, and
the best of them by mean reward is taken.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from rich.progress import Progress
from torch import Tensor

from zol.adapt.problem import Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import ON_THE_SPHERE, zol_search
from zol.adapt.zol_settings import AUTHORS, ZOLConfig
from zol.evidence import Evidence
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import Model

SETTINGS = (
    ZOLConfig(),
    ZOLConfig(learning_rate=3e-3, chi_square=0.01, trust_region=1e-3, clip=50.0),
    ZOLConfig(learning_rate=2e-2, chi_square=0.01, trust_region=1e-3, clip=50.0, steps=150),
)
"""The paper's middle, its OGBench-like one, and a bold one: small, medium and large moves."""


def zol_candidates(model: Model, evidence: Evidence, start: Tensor, *, generator: torch.Generator) -> Tensor:
    """What ZOL makes of prompts ``[T, d]``: under each setting, and as in its authors' code, ``[K, d]``.

    They are candidates for a better judge than the density ratio (:mod:`zol.adapt.rehearse`).
    """
    as_in_code = AUTHORS.updated(steps=SETTINGS[0].steps)
    found = [
        zol_search(model, evidence, start, settings, generator=generator, trace=False)
        for settings in (SETTINGS, [as_in_code])
    ]
    return torch.cat([one.z.flatten(0, 1) for one in found])


def zol_auto(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    rollouts: ImaginedRollouts,
    settings: Sequence[ZOLConfig] = SETTINGS,
    *,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Adapted:
    """The best of the prompts ``[T, d]`` and of ZOL from them under each setting, by imagined return."""
    found = zol_search(model, evidence, start, settings, generator=generator, progress=progress)
    pool = torch.cat([model.project(start).unsqueeze(0), found.z])  # [1 + C, T, d]
    count, tasks, d = pool.shape
    # mean reward of imagined rollouts, over ensemble members and start states
    imagined = rollouts.values(pool.reshape(-1, d), generator).mean((1, 3))  # [(1 + C)·T, T]
    own = torch.arange(tasks)
    scores = imagined.reshape(count, tasks, tasks)[:, own, own]  # each latent by its own task
    best = scores.argmax(0)  # [T]
    names = ["no search", *(f"setting {k}" for k in range(len(settings)))]
    return replace(
        found,
        z=pool[best, own].unsqueeze(0),
        method="zol-auto",
        configs=({task: names[k] for task, k in zip(evidence.tasks, best.tolist(), strict=True)},),
        estimate=scores[best, own].unsqueeze(0),
        diagnostics={"setting": best.to(pool.dtype).unsqueeze(0)},
        trace={},
    )


STARTS, HORIZON = 16, 200  # of the imagined rollouts that choose, as many as rehearsal's by default


def search_with_chosen_settings(problem: Problem, settings: NoSettings) -> Adapted:
    """ZOL with the settings that look best in the learned world."""
    learned = problem.learned_world()
    rollouts = ImaginedRollouts(
        problem.model,
        learned.dynamics,
        problem.layout,
        problem.ordered_tasks,
        learned.starts[:STARTS],
        HORIZON,
    )
    return zol_auto(
        problem.model,
        problem.evidence,
        problem.start,
        rollouts,
        generator=problem.generator("zol-auto"),
        progress=problem.progress,
    )


ZOL_AUTO = Method(
    search_with_chosen_settings,
    NoSettings(),
    needs_learned_world=True,
    revision=2,
    correction=ON_THE_SPHERE,
    estimator="imagination",
)
