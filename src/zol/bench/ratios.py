r"""``zol bench ratios``: density ratios and offline values against true occupancies and returns.

A model is asked for behaviour of K latents: for each of its tasks the prompt z0 and random moves of it
(*near*), and random latents. All of them are played in the world from the same start states
(zol.bench.true_behaviour), scored by every task, and valued on every task by every estimator that applies
(zol.value). Near a task's z0 are its own prompt and moves; far are the other tasks' and the random ones. So
one set of rollouts serves all. Beside the estimators stand three rows that are none
(zol.bench.ratios_controls). Estimators that train networks for every latent are asked about a few latents
only, and all estimators are judged on these once more.

Every piece of work, the rollouts of a model or one estimator on it, is a file in the work folder. A run
that was killed goes on with what is missing.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol.adapt.paper_settings import TASKS
from zol.adapt.problem import Problem
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import BenchedModel, Conditions, open_model
from zol.bench.occupancy import PROJECTIONS
from zol.bench.ratios_controls import DATA, Estimated, controls
from zol.bench.ratios_figure import Places
from zol.bench.ratios_judge import FEW, Judgement, judge, pool
from zol.bench.ratios_report import write_results
from zol.bench.true_behaviour import TrueBehaviour, play
from zol.common.config import Config
from zol.common.errors import DataError, ZolError
from zol.common.extras import require
from zol.common.outputs import require_place
from zol.common.progress import Ticker, progress_bar
from zol.common.provenance import of_numbers
from zol.common.tensors import open_tensors, write_tensors
from zol.common.threads import one_torch_thread
from zol.data import Dataset
from zol.evidence import Evidence
from zol.value import ESTIMATORS, Estimator, ValueEstimate, ValueProblem
from zol.worlds import make
from zol.worlds.donut import TASKS as DONUT

SAMPLES = 10_000  # transitions of --data
PROTOCOL = 4  # raised when rollouts, pools or judgements change: finished work of before is not used then


@dataclass(frozen=True)
class RatioOptions:
    """What is compared, and where it goes."""

    data: tuple[Path, ...] = ()
    """datasets with whole transitions, for models whose own sample holds states only (the zoo's)"""
    estimators: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[ESTIMATOR ...]")] = ()
    """names of estimators; all that apply unless told"""
    episodes: int = 64
    """true episodes per latent; half of them judge the other half"""
    seed: int = 0
    """of the pools and of start states"""
    network_steps: int | None = None
    """gradient steps of estimators that learn; their own unless told"""
    out: Path = Path("results")
    """folder for tables and figures"""
    work: Path = Path("runs/ratios")
    """folder of finished pieces"""
    finished: bool = False
    """report what the work folder holds, and compute no estimator anew"""
    publish: Path | None = None
    """a second place for ratios.json: src/zol/value/accuracy.json is what zol itself quotes"""


class Work:
    """Finished pieces of one model's work, each a file that is named after all that decides its numbers."""

    def __init__(self, options: RatioOptions, subject: BenchedModel) -> None:
        key = {"protocol": PROTOCOL, "model": subject.identity, "tasks": subject.evidence.tasks}
        key |= {"episodes": options.episodes, "seed": options.seed}
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=6).hexdigest()
        self.folder = options.work / f"{subject.domain}-{subject.pretraining_seed}-{digest}"

    def path(self, name: str) -> Path:
        """The file of a piece."""
        return self.folder / f"{name}.safetensors"

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What ``compute`` gives, from its file if there is one; with the ``seconds`` of CPU it took."""
        path = self.path(name)
        if not path.exists():
            began = time.process_time()
            with one_torch_thread():
                tensors = compute()
            tensors["seconds"] = torch.tensor(time.process_time() - began, dtype=torch.float64)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors)
        with open_tensors(path) as file:
            return {key: file.read(key) for key in file.shapes}


def judge_model(
    name: str, options: RatioOptions, data: Mapping[str, Dataset], console: Console, progress: Progress
) -> tuple[list[Judgement], Places | None]:
    """The lines of one model, and where its first prompt goes; finished pieces are not computed again."""
    subject = open_model(name, Conditions(name="ratios", seed=options.seed))
    problem, projection = subject.problem(), PROJECTIONS.get(subject.domain)
    latents, tasks = pool(problem), problem.ordered_tasks
    few, rows = latents.few()
    own = problem.value_problem("ratios")
    other = _with_data(own, data.get(subject.domain), problem)
    work = Work(options, subject)
    console.print(f"{name}: {len(latents.z)} latents, {len(tasks)} tasks of {subject.domain}", soft_wrap=True)
    learned: dict[str, Estimated] = {}

    def rollouts() -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(options.seed + 1)
        world, count = make(subject.domain), options.episodes
        played = play(
            world,
            problem.model,
            latents.z,
            tasks,
            projection,
            episodes=count,
            generator=generator,
            progress=progress,
        )
        return dict(vars(played))

    stored = work.once("rollouts", rollouts)
    seconds = float(stored.pop("seconds"))
    truth = TrueBehaviour(**stored)
    found = controls(own, truth, projection, seconds)
    wanted = options.estimators or tuple(ESTIMATORS)
    bar = Ticker(progress, f"estimators on {subject.domain}", len(wanted))
    for by in wanted:
        estimator = ESTIMATORS[by]
        brought = other is not own and estimator.needs_transitions and own.evidence.before is None
        question = other if brought else own
        asked = few.z if estimator.learns else latents.z
        if estimator.learns:
            question = _first_tasks(question, len(few.near))
        if lacking := estimator.missing(question):
            console.print(f"  {by} is left out, it needs {lacking}", soft_wrap=True)
            bar.advance()
            continue

        def estimate(
            by: str = by,
            estimator: Estimator = estimator,
            question: ValueProblem = question,
            asked: Tensor = asked,
        ) -> dict[str, Tensor]:
            seeded = replace(question, generator=problem.generator(f"ratios {by}"), progress=progress)
            value = estimator.estimate(seeded, asked, _quicker(estimator, options.network_steps))
            tensors = {"mean": value.mean, "error": value.error}
            if value.weights is not None and projection is not None:
                sampled = question.transitions if estimator.needs_transitions else question.evidence
                assert sampled is not None  # nothing is missing
                tensors["occupancy"] = projection.histogram(sampled.obs, problem.layout, value.weights)
            return tensors

        quick = str(options.network_steps or "") if estimator.learns else ""
        source = question.evidence.data if brought else ""
        piece = "-".join(filter(None, (by, source, quick)))
        if options.finished and not work.path(piece).exists():
            console.print(f"  {by} has not been computed yet, and is left out", soft_wrap=True)
            bar.advance()
            continue
        tensors = work.once(piece, estimate)
        value = ValueEstimate(tensors["mean"], tensors["error"])
        one = Estimated(value, tensors.get("occupancy"), float(tensors["seconds"]))
        (learned if estimator.learns else found)[by] = one
        bar.advance(note=by)
    sample = found[DATA].occupancy
    cells, count = None if sample is None else sample[0], len(few.near)
    lines = judge(subject, latents, truth, found, cells)
    learned = {by: one.at(rows, count) for by, one in found.items()} | learned
    lines += judge(subject, few, truth.at(rows, count), learned, cells, FEW)
    if projection is None:
        return lines, None
    # The first prompt is the first latent of both pools.
    seen = {by: one.occupancy[0] for by, one in learned.items() if one.occupancy is not None}
    return lines, Places(subject.domain, tasks[0].name, projection, seen | {"rollouts": truth.where[0]})


def _first_tasks(question: ValueProblem, count: int) -> ValueProblem:
    """The same question about the first tasks only."""
    evidence = question.evidence.only(*question.evidence.tasks[:count])
    return replace(question, evidence=evidence, tasks=question.tasks[:count])


def _quicker(estimator: Estimator, steps: int | None) -> Config | None:
    """The settings of an estimator that learns, with another number of gradient steps; None for its own."""
    return estimator.settings.updated(steps=steps) if steps and estimator.settings is not None else None


def _with_data(own: ValueProblem, dataset: Dataset | None, problem: Problem) -> ValueProblem:
    """The same question about whole transitions of a dataset, for models whose sample holds states only."""
    if dataset is None:
        return own
    generator = problem.generator("ratios data")
    drawn = Evidence.gather(dataset, own.tasks, problem.layout, samples=SAMPLES, generator=generator)
    return replace(own, evidence=replace(drawn, starts=own.evidence.starts))


def run(
    models: Sequence[str], options: RatioOptions | None = None, console: Console | None = None
) -> list[Judgement]:
    """Judge estimators on every model, and write tables, figures and a page."""
    options = options or RatioOptions()
    if not models:
        raise ZolError("no model to look at: give checkpoint folders or names of the zoo")
    if options.episodes < 4 or options.episodes % 2:
        raise ZolError(f"{options.episodes} episodes cannot be halved: give an even number, 4 or more")
    for place in (options.out, options.work, *([options.publish.parent] if options.publish else [])):
        require_place(place)
    require("scipy.stats", "ranking", "The rank correlation")
    for name in options.estimators:
        ESTIMATORS[name]  # an unknown one is refused before anything is played
    sets = _by_world(options.data)
    lines: list[Judgement] = []
    places: dict[str, Places] = {}
    with progress_bar(quiet=console is not None and console.quiet) as progress:
        console = console or progress.console
        bar = Ticker(progress, "models", len(models))
        for model in models:
            judged, seen = judge_model(model, options, sets, console, progress)
            lines += judged
            if seen is not None:
                places.setdefault(seen.domain, seen)  # of the first model of a domain
            bar.advance()
    told = of_numbers() | {"seed of pools": options.seed, "true episodes per latent": options.episodes}
    if options.network_steps:
        told["gradient steps of estimators that learn"] = options.network_steps
    write_results(lines, list(places.values()), told, options.out, options.publish, console)
    return lines


def _by_world(folders: Sequence[Path]) -> dict[str, Dataset]:
    """The datasets by the worlds that they name."""
    sets = {}
    for folder in folders:
        dataset = Dataset.open(folder)
        world = str(dataset.provenance.get("world", ""))
        if not world:
            raise DataError(f"{folder} does not name its world, so nothing says which models it is for")
        sets[world] = dataset
    return sets


def ratios(
    models: tyro.conf.Positional[tuple[str, ...]],
    options: RatioOptions = RatioOptions(),  # noqa: B008
) -> None:
    """Compare density ratios and offline values of latents with true occupancies and returns.

    Writes ratios.csv (one row per model, task and estimator), ratios.md, two figures and ratios.json (how
    well each estimator did on each world). Interrupted, the same command goes on where it stopped.

    Args:
        models: checkpoint folders or names of the zoo
        options: what is compared, and where it goes
    """
    run(models, options)


RATIOS = Benchmark(ratios, {"donut": tuple(DONUT), **TASKS})
