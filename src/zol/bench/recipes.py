"""``zol bench recipes``: ways of pretraining at equal CPU time, on the same data, scored by plain prompts.

Every recipe trains for the same CPU time on one core (zol.bench.cpu_budget), with learning rates that fall
towards its own last step. Recipes that practise act in the world instead of reading the data, and say so.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from zol.adapt.paper_settings import TASKS
from zol.bench.benchmark import Benchmark
from zol.bench.cpu_budget import Setup
from zol.bench.health_ranks import health_ranks
from zol.bench.trial_setups import by_practice, on_data, opened
from zol.bench.trials import Trial, run_trials
from zol.bench.trials_report import Page, publish, scores
from zol.common.errors import ZolError, unknown_name
from zol.common.extras import require
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.train.planning import entry_of
from zol.worlds.base import World


@dataclass(frozen=True)
class Recipe:
    """A way of pretraining: an entry of ``MODELS``, and settings beside those of its preset."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What it learns from."""
        return entry_of(self.model).online or "offline"


RECIPES: dict[str, Recipe] = {
    "preset": Recipe("fb"),
    "slow_b": Recipe("fb", {"backward_learning_rate": 1e-4, "orthonormality": 100.0}),
    "long_small": Recipe(
        "fb",
        {
            "batch_size": 256,
            "learning_rate": 3e-4,
            "actor_learning_rate": 3e-4,
            "backward_learning_rate": 3e-5,
            "target_rate": 0.01,
        },
    ),
    "centred": Recipe("fb", {"centred": True}),
    "frozen_b": Recipe("fb", {"freeze_backward": 0.4}),
    "prior_latents": Recipe("fb", {"prior_share": 0.4}),
    "averaged": Recipe("fb", {"averaging": 0.005}),
    "n_step": Recipe("fb", {"n_step": 3}),
    "bc": Recipe("fb", {"bc": 0.1}),
    "encoder": Recipe("fb", {"encoder": "shallow"}),
    "td_jepa_symmetric": Recipe("td_jepa", {"symmetric": True}),
    "hilp": Recipe("hilp"),
    "laplacian": Recipe("laplacian"),
    "one_step_fb": Recipe("one_step_fb"),
    "prior_features": Recipe("prior_features"),
}
"""What is compared; a recipe is one line."""

TEXT = """\
Every recipe was trained for the same CPU time on one core, on the same data but for those whose kind is
`practice`: they act in the world while they learn, and need no data. The number of updates was found
beforehand from the speed of a throw-away learner; **CPU min** is what training really took, without tests.
**mean**: return of plain prompts at the end, averaged over the paper's tasks, episodes and seeds; tasks in
brackets do not count to it."""


def recipes(
    data: Path,
    recipes: tuple[str, ...] = tuple(RECIPES),
    seeds: tuple[int, ...] = (0, 1),
    minutes: float = 6.0,
    episodes: int = 10,
    out: Path = Path("results/recipes"),
    runs: Path = Path("runs/recipes"),
) -> None:
    """Compare ways of pretraining at equal CPU time, on the same data, by the returns of plain prompts.

    A recipe and seed that is finished is not trained again, and one that was interrupted goes on: run the
    same command as often as needed. Tests come before the first step and after every fifth of the steps.

    Args:
        data: folder of a dataset that names its world
        recipes: names of those to compare
        seeds: of pretraining; all recipes have the same
        minutes: of CPU time per training, tests left out
        episodes: per task and test
        out: folder of results: one file per training, tables, raw returns and a figure
        runs: folder of the trainings themselves
    """
    for name in recipes:
        if name not in RECIPES:
            raise ZolError(unknown_name("recipe", name, RECIPES))
    require("scipy.stats", "ranking", "The rank correlation")
    dataset, world = opened(data)
    conditions = {"world": world.name, "data": dataset.fingerprint(), "minutes": minutes}
    conditions |= {"transitions": len(dataset), "episodes": episodes}
    trials = [
        Trial(
            name=name,
            seed=seed,
            kind=RECIPES[name].kind,
            settings={"model": RECIPES[name].model, **RECIPES[name].settings},
            setup=partial(prepared, RECIPES[name], dataset, world, seed, episodes),
            seconds=60 * minutes,
        )
        for seed in seeds
        for name in recipes
    ]
    outcomes = run_trials(trials, conditions, out, runs)
    tasks = TASKS.get(world.name, tuple(world.tasks))
    page = Page(
        name="recipes",
        title=f"Recipes at equal CPU time: {world.name}, {minutes:g} minutes",
        text=TEXT,
        tasks=tasks,
        tables=(
            ("Returns at the end", scores(outcomes, tasks)),
            ("Health numbers and returns: rank correlations", health_ranks(outcomes, tasks)),
        ),
        score="mean return over " + ", ".join(tasks),
    )
    publish(page, outcomes, out, terminal())


def prepared(
    recipe: Recipe, data: Dataset, world: World, seed: int, episodes: int, folder: Path | None
) -> AbstractContextManager[Setup]:
    """What a trial of a recipe needs."""
    if recipe.kind == "practice":
        return by_practice(recipe.model, recipe.settings, world, folder, seed=seed, episodes=episodes)
    return on_data(recipe.model, recipe.settings, data, world, seed=seed, episodes=episodes)


BENCH = Benchmark(recipes, {"walker": TASKS["walker"]})
