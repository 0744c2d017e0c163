"""What skills would earn, estimated offline: by one estimator, or by all that apply side by side."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from rich.progress import Progress

from zol.common.config import Config
from zol.common.errors import DataError
from zol.common.progress import shown
from zol.session.appraisal import Appraisal
from zol.session.opened import OpenedModel
from zol.session.skill import Skill
from zol.value import ESTIMATORS, ValueEstimate, ValueProblem
from zol.value.accuracy import likely, told
from zol.value.base import joined
from zol.value.optidice import optidice


def value(
    model: OpenedModel,
    skills: Sequence[Skill],
    by: str | tuple[str, ...] | list[str] | None,
    *,
    starts: int,
    seed: int,
    settings: Config | None,
    progress: Progress | None,
) -> ValueEstimate | list[Appraisal]:
    """By one estimator an estimate of all skills; by several, or all that apply, an appraisal of each."""
    groups = _by_task(model, skills, starts, seed)
    z = torch.stack([skill.single_latent().z for skill in skills])
    order = torch.tensor([k for _, rows in groups for k in rows]).argsort()
    extremes = [(problem.evidence.rewards.aminmax(), len(rows)) for problem, rows in groups]
    least, most = (
        torch.cat([getattr(ends, name).expand(count) for ends, count in extremes])[order]
        for name in ("min", "max")
    )

    def estimate(name: str) -> ValueEstimate:
        """Of every skill on its own task, in the order of skills; with the same generator for all."""
        parts = []
        for problem, rows in groups:
            drawn = replace(problem, generator=torch.Generator().manual_seed(seed), progress=display)
            parts.append(ESTIMATORS[name].estimate(drawn, z[rows], settings).on_task(0))
        found = joined(parts).at(order)
        if model.judged_in(name):  # for other kinds of models nothing was measured
            found = replace(found, likely=likely(name, found.mean, least, most, model.judged_in(name)))
        return found

    with shown(progress) as display:
        if isinstance(by, str):
            return replace(estimate(by), told=told(by, model.judged_in(by)))
        names = list(ESTIMATORS) if by is None else list(by)
        lacking = {name: ESTIMATORS[name].missing(groups[0][0]) for name in names}
        found = {name: estimate(name) for name in names if not lacking[name]}
        best = {} if by is not None else _supported(groups, seed, display)
    return [
        Appraisal(
            task=skill.require_task().name,
            method=skill.latent.method,
            domain=model.judged_domain,
            estimates={name: one.at(torch.tensor(k)) for name, one in found.items()},
            left_out={name: what for name, what in lacking.items() if what},
            steps=None if model.world is None else model.world.episode_length,
            supported=best.get(skill.require_task().name),
        )
        for k, skill in enumerate(skills)
    ]


def _by_task(
    model: OpenedModel, skills: Sequence[Skill], starts: int, seed: int
) -> list[tuple[ValueProblem, list[int]]]:
    """What estimators are given for each task of these skills, and which skills are scored by it."""
    if not skills:
        raise DataError("there are no skills to value")
    tasks = {task.name: task for task in (skill.require_task() for skill in skills)}
    evidence = model.label(list(tasks.values()), starts=starts, seed=seed)
    return [
        (
            ValueProblem(
                model=model.model,
                evidence=evidence.only(name),
                tasks=[task],
                layout=model.layout,
                learned_world=model.dynamics,
                episode_length=None if model.world is None else model.world.episode_length,
            ),
            [k for k, skill in enumerate(skills) if skill.require_task().name == name],
        )
        for name, task in tasks.items()
    ]


def _supported(
    groups: Sequence[tuple[ValueProblem, list[int]]], seed: int, progress: Progress
) -> dict[str, float]:
    """What the best behaviour within the data's support earns on every task, where that can be said."""
    found = {}
    for problem, _ in groups:
        data = problem.transitions
        if data is None:
            continue
        generator = torch.Generator().manual_seed(seed)
        best = optidice(data, data.rewards, problem.model.discount, generator=generator, progress=progress)
        found[data.tasks[0]] = float(best.value[0])
    return found
