"""Closed-form prompts as methods: what every search begins with, and what it has to beat."""

from dataclasses import replace

from zol.adapt.problem import Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import score
from zol.evidence import Evidence
from zol.models.base import Model
from zol.prompt import RewardPrompt


def prompted(
    model: Model, evidence: Evidence, how: RewardPrompt = "correlation", *, centre: bool = False
) -> Adapted:
    """The closed-form latent of every task, with the estimates that the ratio gives it."""
    name = "fb" if how == "correlation" else how.replace("_", "-")
    result = score(model, evidence, evidence.prompt(model, how, centre=centre))
    settings = {"how": how, "centre": centre}
    return replace(result, method=name + ("-centred" if centre else ""), configs=(settings,))


def _method(how: RewardPrompt, *, centre: bool = False) -> Method[NoSettings]:
    def adapt(problem: Problem, settings: NoSettings) -> Adapted:
        return prompted(problem.model, problem.evidence, how, centre=centre)

    return Method(adapt, NoSettings())


FB = _method("correlation")
FB_CENTRED = _method("correlation", centre=True)
RIDGE = _method("ridge")
WEIGHTED = _method("weighted")
