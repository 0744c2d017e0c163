"""``zol bench ceilings``: what a fixed set of data allows, task by task.

Offline TD3 learns each task of the world on its own, from scratch, with the task's reward on every
transition: no model that serves all tasks from the same data can be expected to earn more by much. A low
ceiling says that data come first.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from zol.bench.benchmark import Benchmark
from zol.bench.cpu_budget import Metered, Setup
from zol.bench.single_task import SingleTask
from zol.bench.trial_setups import opened
from zol.bench.trials import Outcome, Trial, mean_return, run_trials
from zol.bench.trials_report import Page, cell, final, groups, mean, publish
from zol.collect.rnd import RNDConfig
from zol.common.errors import ZolError, unknown_name
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.evidence import Evidence
from zol.report import Cells
from zol.tasks import Task
from zol.train.loop import TrainConfig
from zol.worlds.base import World

CONFIG = RNDConfig(hidden=256, batch_size=256, learning_rate=3e-4, discount=0.98)
LABELLED = 100_000  # transitions of which the data's own reward is the mean
TEXT = """\
Offline TD3 from scratch, one task at a time, on the same data with the task's reward on every transition.
**mean**: return of the actor at the end; **best test** is the best of the tests on the way and at the end,
chosen by these very returns. **data**: what the average state of the data earns in as many steps."""


def ceilings(
    data: Path,
    tasks: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0,),
    steps: int = 50_000,
    episodes: int = 10,
    out: Path = Path("results/ceilings"),
    runs: Path = Path("runs/ceilings"),
) -> None:
    """Offline TD3 for every task on its own: how much a fixed set of data allows.

    A task and seed that is finished is not trained again, and one that was interrupted goes on. Tests come
    before the first step and after every fifth of the steps.

    Args:
        data: folder of a dataset that names its world
        tasks: names of tasks; all of the world, if none are named
        seeds: of training
        steps: updates per task
        episodes: per test
        out: folder of results: one file per training, tables, raw returns and a figure
        runs: folder of the trainings themselves
    """
    dataset, world = opened(data)
    for name in tasks:
        if name not in world.tasks:
            raise ZolError(unknown_name(f"task of {world.name}", name, world.tasks))
    wanted = [world.tasks[name] for name in tasks or world.tasks]
    trials = [
        Trial(
            name=task.name,
            seed=seed,
            kind="offline, one task",
            settings={"task": task.name, **CONFIG.model_dump(mode="json")},
            setup=partial(_prepared, task, dataset, world, seed, episodes),
            steps=steps,
        )
        for seed in seeds
        for task in wanted
    ]
    conditions = {"world": world.name, "data": dataset.fingerprint(), "transitions": len(dataset)}
    outcomes = run_trials(trials, conditions | {"steps": steps, "episodes": episodes}, out, runs)
    page = Page(
        name="ceilings",
        title=f"Offline TD3, one task at a time: {world.name}, {steps:,} updates",
        text=TEXT,
        tasks=(),
        tables=(("Returns at the end", table(outcomes, data_returns(dataset, world, wanted))),),
        score="return of the task",
    )
    publish(page, outcomes, out, terminal())


@contextmanager
def _prepared(
    task: Task, data: Dataset, world: World, seed: int, episodes: int, folder: Path | None
) -> Iterator[Setup]:
    del folder  # nothing is collected
    learner = SingleTask(world, task, CONFIG, seed)
    training = TrainConfig(batch_size=CONFIG.batch_size, seed=seed)
    test, random = partial(learner.returns, episodes, seed), partial(learner.random, episodes, seed)
    yield Setup(Metered(learner), data, training, test, random)


def data_returns(data: Dataset, world: World, tasks: Sequence[Task]) -> dict[str, float]:
    """What the average state of the data earns in an episode's steps, by task."""
    named = {task.name: task for task in tasks}
    generator = torch.Generator().manual_seed(0)
    found = Evidence.gather(data, named, world.layout, samples=min(len(data), LABELLED), generator=generator)
    return dict(zip(found.tasks, (found.rewards.mean(-1) * world.episode_length).tolist(), strict=True))


def table(outcomes: Sequence[Outcome], data: dict[str, float]) -> Cells:
    """A row per task."""
    seeds = sorted({outcome.seed for outcome in outcomes})
    header = ["task", "updates", "CPU min", "mean", *(f"seed {seed}" for seed in seeds)]
    rows = []
    for name, own in groups(outcomes).items():
        each = {one.seed: final(one, [name]) for one in own}
        best = [max(mean_return(test, [name]) or 0.0 for test in one.tests[1:]) for one in own]
        numbers = [cell(mean([one.cpu_seconds / 60 for one in own]), 1), cell(mean(list(each.values())))]
        numbers += [cell(each.get(seed)) for seed in seeds]
        numbers += [cell(mean(best)), cell(data.get(name)), cell(mean([one.random[name] for one in own]))]
        rows.append([name, f"{own[0].steps:,}", *numbers])
    return [*header, "best test", "data", "random"], rows


BENCH = Benchmark(ceilings)
