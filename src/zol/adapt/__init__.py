"""Search over z with all networks frozen: every method is ``adapt(problem, settings)``, so a table is a loop.

To add a method, write one file with ``adapt(problem, settings) → Adapted``, describe it with
:class:`~zol.adapt.problem.Method`, and give it a line in :data:`METHODS`. One whose behaviour is more than a
latent per task returns a :class:`~zol.adapt.problem.Behaviour` with the policy to be run.

A name may be followed by changed settings, ``rehearse horizon=50 noise=1.0``: a method of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zol.adapt.candidates import candidate_latents
from zol.adapt.controls import perturbed
from zol.adapt.gpi import GPI, gpi_policy
from zol.adapt.lola import LoLAConfig, lola_search
from zol.adapt.problem import Behaviour, Method, NoSettings, Problem
from zol.adapt.prompts import prompted
from zol.adapt.rehearse import RehearsalConfig, rehearsed
from zol.adapt.rela import ReLAConfig, rela_search
from zol.adapt.result import Adapted
from zol.adapt.separately import merged, one_by_one
from zol.adapt.units import in_given_units, in_own_units
from zol.adapt.zol import zol_search
from zol.adapt.zol_settings import AUTHORS, ZOLConfig
from zol.common.config import Config
from zol.common.errors import ZolError
from zol.common.registry import Entry, Registry
from zol.evidence import Evidence

METHODS: Registry[Method[Any]] = Registry(
    "method",
    "zol.methods",
    {
        "fb": Entry("zol.adapt.prompts:FB", "plain FB: z = E[B r]"),
        "plain": Entry("zol.adapt.prompts:PLAIN", "the model's own prompt: FB's E[B r], or least squares"),
        "fb-centred": Entry("zol.adapt.prompts:FB_CENTRED", "plain FB with the mean reward subtracted"),
        "ridge": Entry("zol.adapt.prompts:RIDGE", "least squares r ≈ Bᵀz"),
        "least-squares": Entry(
            "zol.adapt.prompts:LEAST_SQUARES", "least squares r ≈ φᵀz, the own prompt of successor features"
        ),
        "features": Entry("zol.adapt.prompts:FEATURES", "z = E[φ r]: a state's latent is its features"),
        "weighted": Entry("zol.adapt.prompts:WEIGHTED", "z = E[softmax(10 r) B r]"),
        "differences": Entry(
            "zol.adapt.directions:DIFFERENCES", "least squares r ≈ (φ(s') − φ(s))ᵀz, a convention of HILP"
        ),
        "towards": Entry(
            "zol.adapt.directions:TOWARDS", "z = φ(g) − φ(s) anew at every step, HILP's direction to a goal"
        ),
        "goal": Entry("zol.adapt.prompts:GOAL", "z = B(goal), for tasks that have a goal state"),
        "subgoals": Entry(
            "zol.adapt.subgoals:SUBGOALS",
            "ours: goals through a chain of data states that the model can reach",
        ),
        "waypoints": Entry(
            "zol.adapt.waypoints:WAYPOINTS",
            "ours: goals along ways through places of the data, by latents of directions",
        ),
        "switches": Entry(
            "zol.adapt.switches:SWITCHES",
            "ours: facts such as colours of buttons, brought into the goal's order one by one",
        ),
        "zol": Entry("zol.adapt.zol:ZOL", "the paper's search, one setting for all tasks"),
        "zol-paper": Entry(
            "zol.adapt.zol:ZOL_PAPER",
            "the paper's search with its settings per task, which the authors chose by test returns",
        ),
        "zol-authors": Entry(
            "zol.adapt.zol:ZOL_AUTHORS",
            "the search as in the authors' code: exp weights, μ over data states",
        ),
        "perturb": Entry("zol.adapt.controls:PERTURB", "control: random moves as long as zol's"),
        "zol-auto": Entry(
            "zol.adapt.zol_auto:ZOL_AUTO",
            "the paper's search, its settings chosen offline in the learned world",
        ),
        "gpi": Entry(
            "zol.adapt.gpi:GPI_METHOD",
            "at every step the best of prompts, goals and zol by the model's own value",
        ),
        "supported": Entry(
            "zol.adapt.supported:SUPPORTED",
            "at every step the best of some actions of the data's behaviour by the model's own value",
        ),
        "guided": Entry(
            "zol.adapt.guided:GUIDED",
            "a behaviour flow bent towards the model's own value, and the best of its actions by that value",
        ),
        "weighted-bc": Entry(
            "zol.adapt.weighted_bc:WEIGHTED_BC",
            "behaviour cloning with weights: a network per task",
        ),
        "tune": Entry(
            "zol.adapt.tune:TUNE", "minutes of offline TD3 from the model's own weights: a network per task"
        ),
        "episodes": Entry(
            "zol.adapt.episodes:EPISODES",
            "ours: prompts and latents as in training, played through whole imagined episodes",
        ),
        "rehearse": Entry(
            "zol.adapt.rehearse:REHEARSE", "ours: search by playing latents in the learned world"
        ),
        "agreed": Entry(
            "zol.adapt.agreed:AGREED", "rehearsal's winner or a prompt, where learned world and critics agree"
        ),
        "lola": Entry("zol.adapt.lola:LOLA", "LoLA, which practises in the environment"),
        "rela": Entry("zol.adapt.rela:RELA", "ReLA, which practises in the environment"),
    },
)
"""name → method. ``oracle`` rows are no methods: they are read off a sweep (:mod:`zol.bench.sweep`)."""


def find_method(name: str) -> Method[Any]:
    """The method of that name, with the settings that follow it; a near miss is suggested."""
    base, *changes = name.split() or [""]
    method = METHODS[base]
    if not changes:
        return method
    if isinstance(method.settings, NoSettings):
        raise ZolError(f"{base} has no settings to change, and {' '.join(changes)} was asked for")
    return replace(method, settings=method.settings.updated(**_parsed(base, changes)))


def method_summary(name: str) -> str:
    """What a method is, in one line."""
    base, *changes = name.split()
    return f"{base} with {', '.join(changes)}" if changes else METHODS[base].summary or METHODS.summary(base)


def estimator_of(method: str) -> str:
    """The estimator (zol.value) behind the estimates that a method reports; the ratio unless it says so."""
    base = method.split()[0] if method.split() else ""
    return METHODS[base].estimator if base in METHODS else "ratio"


def _parsed(base: str, changes: Sequence[str]) -> dict[str, Any]:
    """Settings from words such as ``horizon=50``."""
    values = {}
    for change in changes:
        field, _, value = change.partition("=")
        try:
            values[field] = json.loads(value)
        except (ValueError, RecursionError):
            raise ZolError(f"'{change:.80}' changes no setting of {base}: write field=value") from None
    return values


def solve(name: str, problem: Problem, settings: Config | None = None) -> Behaviour:
    """Run a method under its own name; one that works offline is kept away from the world.

    Rewards of extraordinary size reach it in units of their own (:mod:`zol.adapt.units`). Tasks with start
    states of their own are solved one by one (:mod:`zol.adapt.separately`).
    """
    method = find_method(name)
    if problem.evidence.own_starts is not None and len(problem.evidence.tasks) > 1:
        return merged([solve(name, part, settings) for part in one_by_one(problem)], problem.evidence)
    given, unit = in_own_units(replace(problem, world=None) if method.offline else problem)
    result = method.adapt(given, settings or method.settings)
    behaviour = result if isinstance(result, Behaviour) else Behaviour(result)
    found = in_given_units(behaviour.found, unit, problem)
    return replace(behaviour, found=replace(found, method=name))


__all__ = [
    "AUTHORS",
    "GPI",
    "METHODS",
    "Adapted",
    "Behaviour",
    "Evidence",
    "LoLAConfig",
    "Method",
    "Problem",
    "ReLAConfig",
    "RehearsalConfig",
    "ZOLConfig",
    "candidate_latents",
    "estimator_of",
    "find_method",
    "gpi_policy",
    "lola_search",
    "method_summary",
    "perturbed",
    "prompted",
    "rehearsed",
    "rela_search",
    "solve",
    "zol_search",
]
