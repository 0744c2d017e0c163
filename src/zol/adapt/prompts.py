"""Closed-form prompts as methods: what every search begins with, and what it has to beat."""

from dataclasses import replace

import torch

from zol.adapt.problem import Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import score
from zol.evidence import Evidence
from zol.models.base import Model
from zol.prompt import RewardPrompt, goal


def prompted(
    model: Model, evidence: Evidence, how: RewardPrompt = "correlation", *, centre: bool = False
) -> Adapted:
    """The closed-form latent of every task, with the estimates that the ratio gives it."""
    result = score(model, evidence, evidence.prompt(model, how, centre=centre))
    settings = {"how": how, "centre": centre}
    return replace(result, method=prompt_name(how) + ("-centred" if centre else ""), configs=(settings,))


def prompt_name(how: RewardPrompt) -> str:
    """What the registry of methods calls a prompt."""
    return "fb" if how == "correlation" else how.replace("_", "-")


def _own(problem: Problem, settings: NoSettings) -> Adapted:
    """The prompt that suits the model: E[B r] for FB, least squares for successor features."""
    return prompted(problem.model, problem.evidence, problem.prompt)


def _method(how: RewardPrompt, *, centre: bool = False) -> Method[NoSettings]:
    def adapt(problem: Problem, settings: NoSettings) -> Adapted:
        return prompted(problem.model, problem.evidence, how, centre=centre)

    return Method(adapt, NoSettings())


def _goal(problem: Problem, settings: NoSettings) -> Adapted:
    """B(goal) of every task that has a goal; the others are prompted by their rewards (``goal_given`` 0)."""
    model, evidence = problem.model, problem.evidence
    z = problem.start.clone()
    given = torch.zeros(1, len(evidence.tasks), dtype=torch.float64)
    for t, task in enumerate(problem.ordered_tasks):
        if task.goal is not None:
            z[t] = goal(model, task.goal.to(z).unsqueeze(0))[0]
            given[0, t] = 1.0
    result = score(model, evidence, z)
    return replace(result, method="goal", diagnostics=dict(result.diagnostics) | {"goal_given": given})


PLAIN: Method[NoSettings] = Method(_own, NoSettings())
FB = _method("correlation")
GOAL: Method[NoSettings] = Method(_goal, NoSettings())
FB_CENTRED = _method("correlation", centre=True)
RIDGE = _method("ridge")
LEAST_SQUARES = _method("least_squares")
FEATURES = _method("features")
WEIGHTED = _method("weighted")
