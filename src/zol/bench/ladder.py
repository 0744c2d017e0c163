"""``zol bench ladder``: where does learning many behaviours at once break?

The learner and the loop of ``prior_features``, practice in a world, with pools of rewards of growing size:

    td3               one task, plain TD3 in the same loop: no latents, no features
    tasks_1, 2, 5     the first 1, 2, 5 tasks of the world, and nothing else
    tasks_5_prior_20  those five, and 20 rewards of the prior
    tasks_5_prior     those five, and the whole prior, which grows to 2048
    prior             the prior alone: the model as it is trained

Rungs with tasks in their pool have seen the test. They are a diagnosis, labelled ``oracle``, and no models.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zol.adapt.paper_settings import TASKS
from zol.bench.benchmark import Benchmark
from zol.bench.cpu_budget import Setup
from zol.bench.ladder_rungs import MODEL, practise_for, td3_by_practice
from zol.bench.trial_setups import by_practice
from zol.bench.trials import Outcome, Trial, run_trials
from zol.bench.trials_report import MISSING, Page, cell, final, groups, mean, publish
from zol.common.errors import ZolError, unknown_name
from zol.common.terminal import terminal
from zol.models.prior_features import PriorFeaturesConfig
from zol.report import Cells
from zol.worlds import make
from zol.worlds.base import World


@dataclass(frozen=True)
class Rung:
    """What a pool holds."""

    tasks: int
    """so many tasks of the world, the first ones"""
    prior: int
    """so many rewards of the prior"""
    td3: bool = False
    """plain TD3 instead of successor features"""


WHOLE: int = PriorFeaturesConfig.model_fields["rewards"].default
RUNGS: dict[str, Rung] = {
    "td3": Rung(1, 0, td3=True),
    "tasks_1": Rung(1, 0),
    "tasks_2": Rung(2, 0),
    "tasks_5": Rung(5, 0),
    "tasks_5_prior_20": Rung(5, 20),
    "tasks_5_prior": Rung(5, WHOLE),
    "prior": Rung(0, WHOLE),
}
"""From one task to all that the prior asks for; a rung is one line."""
ORDER = {"walker": ("walk", "stand", "run", "spin", "flip")}
"""In which order a world's tasks join; that of the world, if it is not named here."""
SETTINGS: dict[str, Any] = {}
"""Settings of model, loop and practice beside those of the preset, for all rungs."""

TEXT = """\
The same learner and loop (`prior_features`, practice in the world), the same CPU time on one core, pools of
rewards of growing size. `oracle` rungs practised for tasks that they are tested on: they show where learning
breaks, and are no models to compare with. **own tasks**: mean return over the tasks in the pool (over all
five for `prior`, which knows none of them); tasks in brackets were not in the pool. `td3` has neither latents
nor features, is tested on its one task, and acts by its trained actor where the others act by an average."""


def ladder(
    world: str = "walker",
    rungs: tuple[str, ...] = tuple(RUNGS),
    seeds: tuple[int, ...] = (0,),
    minutes: float = 6.0,
    episodes: int = 10,
    out: Path = Path("results/ladder"),
    runs: Path = Path("runs/ladder"),
) -> None:
    """Practise for one task, for a few, and for a prior over rewards, at equal CPU time: a diagnosis.

    A rung and seed that is finished is not trained again, and one that was interrupted goes on. Tests come
    before the first step and after every fifth of the steps.

    Args:
        world: where they practise
        rungs: names of pools of rewards
        seeds: of pretraining
        minutes: of CPU time per training, tests left out
        episodes: per task and test
        out: folder of results: one file per training, tables, raw returns and a figure
        runs: folder of the trainings themselves
    """
    for name in rungs:
        if name not in RUNGS:
            raise ZolError(unknown_name("rung of the ladder", name, RUNGS))
    place = make(world)
    tasks = ORDER.get(place.name, tuple(place.tasks))[: max(rung.tasks for rung in RUNGS.values())]
    trials = [
        Trial(
            name=name,
            seed=seed,
            kind="oracle" if RUNGS[name].tasks else "practice",
            settings={"tasks": list(tasks[: RUNGS[name].tasks]), "prior": RUNGS[name].prior, **SETTINGS},
            setup=partial(_prepared, RUNGS[name], tasks, place, seed, episodes),
            seconds=60 * minutes,
        )
        for seed in seeds
        for name in rungs
    ]
    conditions = {"world": place.name, "minutes": minutes, "episodes": episodes}
    outcomes = run_trials(trials, conditions, out, runs)
    page = Page(
        name="ladder",
        title=f"From one task to a prior over rewards: {place.name}, {minutes:g} minutes",
        text=TEXT,
        tasks=tasks[:1],
        tables=(("Returns at the end", table(outcomes, tasks)),),
        score=f"mean return of {tasks[0]}",
    )
    publish(page, outcomes, out, terminal())


def _prepared(
    rung: Rung, order: Sequence[str], world: World, seed: int, episodes: int, folder: Path | None
) -> AbstractContextManager[Setup]:
    tasks = [world.tasks[name] for name in order[: rung.tasks]]
    if rung.td3:
        return td3_by_practice(tasks[0], SETTINGS, world, seed, episodes, folder)
    adjust = partial(practise_for, tasks, rung.prior, world.layout) if tasks else None
    return by_practice(MODEL, SETTINGS, world, folder, seed=seed, episodes=episodes, adjust=adjust)


def table(outcomes: Sequence[Outcome], tasks: Sequence[str]) -> Cells:
    """A row per rung: the mean over its own tasks, and every task, in brackets if the pool had it not."""
    seeds = sorted({outcome.seed for outcome in outcomes})
    header = ["rung", "kind", "updates", "CPU min", "own tasks", *(f"seed {seed}" for seed in seeds), *tasks]
    rows = []
    for name, own in groups(outcomes).items():
        known = own[0].settings["tasks"]
        each = {one.seed: final(one, known or tasks) for one in own}
        updates = mean([float(one.steps) for one in own])
        row = [name, own[0].kind, f"{updates:,.0f}", cell(mean([one.cpu_seconds / 60 for one in own]), 1)]
        row += [cell(mean(list(each.values()))), *(cell(each.get(seed)) for seed in seeds)]
        for task in tasks:
            found = cell(mean([final(one, [task]) for one in own]))
            row.append(found if task in known or found == MISSING else f"({found})")
        rows.append(row)
    return header, rows


BENCH = Benchmark(ladder, {"walker": TASKS["walker"]})
