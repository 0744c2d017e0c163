"""Every method of the benchmark under one signature: a problem in, latents out (zol.adapt.problem).

To add a method, write ``adapt(problem) → Adapted`` and put it into :data:`METHODS`. One whose behaviour is
more than a latent per task returns a :class:`Behaviour` with the policy to be tested.

A name may be followed by changed settings, ``rehearse horizon=50 noise=1.0``: a method of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from zol.adapt.auto import zol_auto, zol_candidates
from zol.adapt.controls import perturbed, prompted
from zol.adapt.gpi import candidate_latents, gpi_policy
from zol.adapt.lola import LoLAConfig, lola_search
from zol.adapt.problem import Behaviour, Method, Problem
from zol.adapt.rehearse import RehearsalConfig, rehearsed
from zol.adapt.rela import ReLAConfig, rela_search
from zol.adapt.result import Adapted
from zol.adapt.zol import AUTHORS, ZOLConfig, zol
from zol.bench.paper import best_on_test_returns
from zol.common.errors import ZolError, unknown_name
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import identity
from zol.prompt import RewardPrompt

# ReLA as circulated makes one update per environment step, 20 minutes per task on a CPU. This is a twentieth
# of the updates at twenty times the rates.
RELA = ReLAConfig(updates_per_step=0.05, batch_size=256, learning_rate=2e-3, critic_learning_rate=2e-3)


def prompt_method(problem: Problem, how: RewardPrompt, centre: bool = False) -> Adapted:
    """A closed-form latent."""
    return prompted(problem.model, problem.evidence, how, centre=centre)


def search(problem: Problem, config: ZOLConfig) -> Adapted:
    """ZOL from plain FB's latents, with the same settings for every task."""
    generator = problem.generator("zol")
    return zol(problem.model, problem.evidence, problem.start, config, generator=generator)


def search_as_in_paper(problem: Problem) -> Adapted:
    """ZOL with the paper's own settings of each domain and task."""
    evidence, start = problem.evidence, problem.start
    settings = {name: best_on_test_returns(problem.domain, name) for name in evidence.tasks}
    found = [
        zol(problem.model, evidence.only(name), start[t : t + 1], settings[name])
        for t, name in enumerate(evidence.tasks)
    ]
    return Adapted(
        z=torch.cat([one.z for one in found], dim=1),
        start=torch.cat([one.start for one in found]),
        method="zol-paper",
        configs=({name: config.model_dump() for name, config in settings.items()},),
        evidence=evidence,
        model_identity=identity(problem.model),
        estimate=torch.cat([one.estimate for one in found], dim=1),
        diagnostics={
            name: torch.cat([one.diagnostics[name] for one in found], dim=1) for name in found[0].diagnostics
        },
    )


def random_moves(problem: Problem) -> Adapted:
    """The control: plain FB's latents, moved as far as ZOL moved them, in random directions."""
    moved = search(problem, ZOLConfig()).distance[0]
    generator = problem.generator("perturb")
    return perturbed(problem.model, problem.evidence, problem.start, moved, generator)


def rehearse(problem: Problem, config: RehearsalConfig) -> Adapted:
    """Search by playing latents in the learned world; ZOL's latents are among the candidates."""
    return rehearsed(
        problem.model,
        problem.learned_world(),
        problem.evidence,
        [problem.tasks[name] for name in problem.evidence.tasks],
        problem.layout,
        config,
        generator=problem.generator("rehearse"),
        others=lambda: zol_candidates(
            problem.model, problem.evidence, problem.start, generator=problem.generator("zol")
        ),
    )


def search_with_chosen_settings(problem: Problem) -> Adapted:
    """ZOL with the settings that look best in the learned world."""
    learned, names = problem.learned_world(), problem.evidence.tasks
    room = ImaginedRollouts(
        problem.model,
        learned.dynamics,
        problem.layout,
        [problem.tasks[name] for name in names],
        learned.starts[: RehearsalConfig().starts],
        RehearsalConfig().horizon,
    )
    generator = problem.generator("zol-auto")
    return zol_auto(problem.model, problem.evidence, problem.start, room, generator=generator)


def practise_lola(problem: Problem) -> Adapted:
    """LoLA, in the environment."""
    return lola_search(
        problem.model,
        problem.evidence,
        problem.start,
        problem.environment(),
        problem.tasks,
        generator=problem.generator("lola"),
    )


def practise_rela(problem: Problem) -> Adapted:
    """ReLA, in the environment."""
    return rela_search(
        problem.model,
        problem.evidence,
        problem.start,
        problem.environment(),
        problem.tasks,
        RELA,
        generator=problem.generator("rela"),
    )


def generalised(problem: Problem) -> Behaviour:
    """GPI over prompts, goals and ZOL's latent."""
    candidates = candidate_latents(problem.model, problem.evidence, search(problem, ZOLConfig()).z[0])
    rule = gpi_policy(problem.model, problem.evidence, candidates)
    return Behaviour(rule.best(), rule)


METHODS: dict[str, Method] = {
    "fb": Method(partial(prompt_method, how="correlation"), "plain FB: z = E[B r]"),
    "fb-centred": Method(
        partial(prompt_method, how="correlation", centre=True), "plain FB with the mean reward subtracted"
    ),
    "ridge": Method(partial(prompt_method, how="ridge"), "least squares r ≈ Bᵀz"),
    "weighted": Method(partial(prompt_method, how="weighted"), "z = E[softmax(10 r) B r]"),
    "zol": Method(
        partial(search, config=ZOLConfig()),
        "the paper's search, one setting for all tasks",
        settings=ZOLConfig().model_dump(),
    ),
    "zol-paper": Method(
        search_as_in_paper,
        "the paper's search with its settings per task, which the authors chose by test returns",
    ),
    "zol-authors": Method(
        partial(search, config=AUTHORS),
        "the search as in the authors' code: exp weights, μ over data states",
        settings=AUTHORS.model_dump(),
    ),
    "perturb": Method(
        random_moves,
        "control: random moves as long as zol's",
        settings={"as far as": ZOLConfig().model_dump()},
    ),
    "zol-auto": Method(
        search_with_chosen_settings,
        "the paper's search, its settings chosen offline in the learned world",
        rehearses=True,
    ),
    "gpi": Method(generalised, "at every step the best of prompts, goals and zol by the model's own value"),
    "rehearse": Method(
        partial(rehearse, config=RehearsalConfig()),
        "ours: search by playing latents in the learned world",
        rehearses=True,
        settings=RehearsalConfig().model_dump(),
    ),
    "lola": Method(
        practise_lola,
        "LoLA, which practises in the environment",
        offline=False,
        settings=LoLAConfig().model_dump(),
    ),
    "rela": Method(
        practise_rela, "ReLA, which practises in the environment", offline=False, settings=RELA.model_dump()
    ),
}
"""name → method. ``oracle`` rows are no methods: they are read off a sweep (:mod:`zol.bench.sweep`)."""


# The imagined search with one change at a time: how far it looks, how many networks judge, how it doubts.
REHEARSALS = (
    *(f"rehearse horizon={steps}" for steps in (25, 50, 100, 400)),
    *(f"rehearse members={count}" for count in (1, 2)),
    *(f"rehearse noise={size}" for size in (0.5, 1.0)),
    "rehearse pessimism=0.0",
    "rehearse worth=0.0",
    "rehearse horizon=50 bootstrap=true",
    "rehearse trust=-1.0 miss=9.0",
)


def find_method(name: str) -> Method:
    """The method of that name, with the settings that follow it; a near miss is suggested."""
    base, *changes = name.split() or [""]
    if base not in METHODS:
        raise ZolError(unknown_name("method", base, METHODS))
    return _changed(base, changes) if changes else METHODS[base]


def _changed(base: str, changes: Sequence[str]) -> Method:
    """A method with other settings, each given as ``field=value``."""
    method = METHODS[base]
    adapt: Any = method.adapt
    config = getattr(adapt, "keywords", {}).get("config")
    if config is None:
        raise ZolError(f"{base} has no settings to change, and {' '.join(changes)} was asked for")
    values = {}
    for change in changes:
        field, _, value = change.partition("=")
        try:
            values[field] = json.loads(value)
        except json.JSONDecodeError:
            raise ZolError(f"'{change}' changes no setting of {base}: write field=value") from None
    config = config.but(**values)
    return replace(
        method,
        adapt=partial(adapt, config=config),
        summary=f"{base} with {', '.join(changes)}",
        settings=config.model_dump(),
    )


def solve(name: str, problem: Problem) -> Behaviour:
    """Run a method under its own name; one that works offline is kept away from the world."""
    method = find_method(name)
    given = problem if not method.offline else replace(problem, world=None)
    result = method.adapt(given)
    behaviour = result if isinstance(result, Behaviour) else Behaviour(result)
    return replace(behaviour, found=replace(behaviour.found, method=name))
