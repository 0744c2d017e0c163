r"""Rewards of any size: methods see those of extraordinary size in a unit of their own.

The unit of a reward means nothing, but settings have one. ZOL weighs a return against penalties that know no
reward, λ_χ mean (w − 1)² and λ_z ‖Π(z) − Π(z0)‖²; weighted prompts take softmax(10 r); Adam divides by
√second moment + 1e-8; ReLA's critics begin at zero and learn at a given rate. At 1e-30 only the penalties
would be left of a search, at 1e30 nothing of them. So a task whose largest reward on the sample lies outside
2^±20 is divided by it,

    r ← r / m,        m = max_i |r_i|,        estimates ← m · estimates,

once, here, before any method sees it. Latents of r and of c·r are then the same for all c that make r
extraordinary: to the last bit for powers of two, to rounding for others. They are also those of r itself
where m = 1, as for most rewards that people write.

Rewards of ordinary size are used as they are, though a search does depend on their unit there: the paper's
penalties are stated for rewards of that size, and every stored result was found with them.
"""

from dataclasses import replace

import torch
from torch import Tensor

from zol import prompt
from zol.adapt.problem import Problem
from zol.adapt.result import IN_UNITS_OF_REWARD, Adapted
from zol.fields import States
from zol.tasks import Task


def in_own_units(problem: Problem) -> tuple[Problem, Tensor]:
    """The problem with extraordinary rewards divided by their units m ``[T]``, which are 1 elsewhere."""
    evidence = problem.evidence
    _, exponent = prompt.ordinary_scale(evidence.rewards)
    largest = evidence.rewards.abs().amax(-1).double()
    unit = torch.where(exponent != 0, largest, 1.0)
    if not bool(exponent.any()):
        return problem, unit
    rewards = (evidence.rewards.double() / unit.unsqueeze(-1)).to(evidence.rewards.dtype)
    units = dict(zip(evidence.tasks, unit.tolist(), strict=True))
    tasks = {name: _divided(task, units.get(name, 1.0)) for name, task in problem.tasks.items()}
    return replace(problem, evidence=replace(evidence, rewards=rewards), tasks=tasks), unit


def in_given_units(found: Adapted, unit: Tensor, problem: Problem) -> Adapted:
    """What a method found, with everything that is counted in rewards in the units of the given problem."""
    if bool((unit == 1).all()):
        return found
    diagnostics, trace = (
        {name: value.double() * unit if name in IN_UNITS_OF_REWARD else value for name, value in kept.items()}
        for kept in (found.diagnostics, found.trace)
    )
    return replace(
        found,
        evidence=problem.evidence,
        estimate=found.estimate.double() * unit,
        diagnostics=diagnostics,
        trace=trace,
    )


def _divided(task: Task, unit: float) -> Task:
    """The same task with r / unit as its reward, computed where it cannot overflow."""
    if unit == 1:
        return task

    def reward(states: States) -> Tensor:
        given = task(states)
        return (given.double() / unit).to(given.dtype if given.is_floating_point() else torch.float32)

    return replace(task, reward=reward)
