r"""``zol bench ratios``: density ratios and offline values against true occupancies and returns.

A model is asked for behaviour of K latents: for each of its tasks the prompt z0 and random moves of it
(*near*), and random latents. All of them are played in the world from the same start states
(zol.bench.true_behaviour), scored by every task, and valued on every task by every estimator that applies
(zol.value). Near a task's z0 are its own prompt and moves; far are the other tasks' and the random ones. So
one set of rollouts serves all.

Three rows of every table are no estimators. ``data`` weighs every state alike and knows nothing about
latents. ``exact F`` is the ratio that the model would have if F were exact: it knows the true mean of B under
the policy, so that all its errors are what B cannot express, and what it does better than ``ratio`` is F's
doing. ``rollouts`` knows half of the true episodes and is judged on the other half: the noise that nothing
can beat.

Every piece of work, the rollouts of a model or one estimator on it, is a file in the work folder. A run
that was killed goes on with what is missing.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol import prompt
from zol.adapt.paper_settings import TASKS
from zol.adapt.problem import Problem
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import BenchedModel, Conditions, open_model
from zol.bench.occupancy import PROJECTIONS, Projection, overlap, supported
from zol.bench.ranking import NEAR, STEP, spearman
from zol.bench.ratios_report import Judgement, write_results
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

RANDOM = 4
SAMPLES = 10_000  # transitions of --data
PROTOCOL = 2  # raised when rollouts, pools or judgements change: finished work of before is not used then
DATA, EXACT, ROLLOUTS = "data", "exact F", "rollouts"


@dataclass(frozen=True)
class Pool:
    """Latents ``[K, d]``, and which are near each task's prompt ``[T, 1 + NEAR]``, the prompt first."""

    z: Tensor
    near: Tensor


def pool(problem: Problem) -> Pool:
    """Every task's prompt and random moves of it, then random latents."""
    model, generator = problem.model, problem.generator("ratios")
    z0 = problem.start.unsqueeze(1)  # [T, 1, d]
    noise = torch.randn(len(z0), NEAR, model.z_dim, generator=generator)
    random = torch.randn(RANDOM, model.z_dim, generator=generator)
    near = torch.cat([z0, model.project(z0 + STEP * noise)], dim=1)
    numbers = torch.arange(near.shape[0] * near.shape[1]).reshape(near.shape[:2])
    return Pool(torch.cat([near.flatten(0, 1), model.project(random)]), numbers)


@dataclass(frozen=True)
class Estimated:
    """What one estimator says about K latents on T tasks; its occupancies if it has weights."""

    value: ValueEstimate  # [K, T]
    occupancy: Tensor | None  # [K, cells]
    seconds: float


def judge(
    subject: BenchedModel,
    latents: Pool,
    truth: TrueBehaviour,
    found: Mapping[str, Estimated],
    sample: Tensor | None,
) -> list[Judgement]:
    """One line per task and estimator; ``sample`` is the histogram of the model's own sample ``[cells]``."""
    half = truth.discounted.shape[-1] // 2
    lines = []
    for name, estimated in found.items():
        # Half of the rollouts are judged by the other half, everything else by all.
        part = slice(half, None) if name == ROLLOUTS else slice(None)
        discounted, undiscounted = (
            x[..., part].mean(-1) for x in (truth.discounted, truth.undiscounted)
        )  # [K, T]
        where = truth.occupancy[1] if name == ROLLOUTS else truth.where
        met = None if estimated.occupancy is None else overlap(where, estimated.occupancy)  # [K]
        value = estimated.value
        for t, task in enumerate(subject.evidence.tasks):
            guess, own = value.mean[:, t].double(), latents.near[t]
            real, plain = discounted[:, t], undiscounted[:, t]
            inside = (real >= value.low[:, t]) & (real <= value.high[:, t])
            choice = own[guess[own].argmax()]
            lines.append(
                Judgement(
                    domain=subject.domain,
                    seed=subject.pretraining_seed,
                    model=subject.identity,
                    task=task,
                    estimator=name,
                    overlap=None if met is None else float(met[own].mean()),
                    support=None if sample is None else float(supported(where, sample)[own].mean()),
                    spearman_global=spearman(guess, real),
                    spearman_near=spearman(guess[own], real[own]),
                    regret=float(real[own].max() - real[choice]),
                    plain_regret=float(real[own].max() - real[own[0]]),
                    bias=float((guess - real).mean()),
                    mean_abs_error=float((guess - real).abs().mean()),
                    coverage=float(inside.double().mean()),
                    spearman_global_undiscounted=spearman(guess, plain),
                    spearman_near_undiscounted=spearman(guess[own], plain[own]),
                    regret_undiscounted=float(plain[own].max() - plain[choice]),
                    seconds=estimated.seconds / len(latents.z),
                )
            )
    return lines


class Work:
    """Finished pieces of one model's work, each a file that is named after all that decides its numbers."""

    def __init__(self, folder: Path, subject: BenchedModel, **facts: object) -> None:
        key = {"protocol": PROTOCOL, "model": subject.identity, "tasks": subject.evidence.tasks, **facts}
        digest = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=6).hexdigest()
        self.folder = folder / f"{subject.domain}-{subject.pretraining_seed}-{digest}"

    def once(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """What ``compute`` gives, from its file if there is one; with the ``seconds`` of CPU it took."""
        path = self.folder / f"{name}.safetensors"
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
    name: str,
    data: Mapping[str, Dataset],
    episodes: int,
    seed: int,
    estimators: Sequence[str],
    network_steps: int | None,
    work: Path,
    console: Console,
    progress: Progress,
) -> list[Judgement]:
    """The lines of one model; pieces that are in the work folder are not computed again."""
    subject = open_model(name, Conditions(name="ratios", seed=seed))
    problem, projection = subject.problem(), PROJECTIONS.get(subject.domain)
    latents, tasks = pool(problem), problem.ordered_tasks
    own = problem.value_problem("ratios")
    other = _with_data(own, data.get(subject.domain), problem)
    done = Work(work, subject, episodes=episodes, seed=seed)
    console.print(f"{name}: {len(latents.z)} latents, {len(tasks)} tasks of {subject.domain}", soft_wrap=True)

    def rollouts() -> dict[str, Tensor]:
        played = play(
            make(subject.domain),
            problem.model,
            latents.z,
            tasks,
            projection,
            episodes=episodes,
            generator=torch.Generator().manual_seed(seed + 1),
            progress=progress,
        )
        return dict(vars(played))

    stored = done.once("rollouts", rollouts)
    truth = TrueBehaviour(**{name: x for name, x in stored.items() if name != "seconds"})
    ones = torch.ones(1, len(own.evidence.obs))
    layout = problem.layout
    sample = projection.histogram(own.evidence.obs, layout, ones)[0] if projection else None
    found = {
        DATA: _of_data(own, latents, sample),
        EXACT: _of_features(own, truth, projection),
        ROLLOUTS: _of_rollouts(truth, float(stored["seconds"])),
    }
    bar = Ticker(progress, f"estimators on {subject.domain}", len(estimators))
    for by in estimators:
        question = other if ESTIMATORS[by].needs_transitions and own.evidence.before is None else own
        if lacking := ESTIMATORS[by].missing(question):
            console.print(f"  {by} is left out, it needs {lacking}", soft_wrap=True)
            bar.advance()
            continue

        def estimate(by: str = by, question: ValueProblem = question) -> dict[str, Tensor]:
            seeded = replace(question, generator=problem.generator(f"ratios {by}"), progress=progress)
            value = ESTIMATORS[by].estimate(seeded, latents.z, _quicker(ESTIMATORS[by], network_steps))
            tensors = {"mean": value.mean, "error": value.error}
            if value.weights is not None and projection is not None:
                sampled = question.transitions if ESTIMATORS[by].needs_transitions else question.evidence
                assert sampled is not None  # nothing is missing
                tensors["occupancy"] = projection.histogram(sampled.obs, layout, value.weights)
            return tensors

        key = by if question is own else f"{by}-{question.evidence.data}"
        key += f"-{network_steps}" if network_steps and ESTIMATORS[by].learns else ""
        tensors = done.once(key, estimate)
        value = ValueEstimate(tensors["mean"], tensors["error"])
        found[by] = Estimated(value, tensors.get("occupancy"), float(tensors["seconds"]))
        bar.advance(note=by)
    return judge(subject, latents, truth, found, sample)


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


def _of_data(own: ValueProblem, latents: Pool, sample: Tensor | None) -> Estimated:
    """The sample's mean reward, whatever the latent."""
    rewards, K = own.evidence.rewards, len(latents.z)
    error = rewards.std(-1) / rewards.shape[-1] ** 0.5
    value = ValueEstimate(rewards.mean(-1).expand(K, -1), error.expand(K, -1))
    return Estimated(value, None if sample is None else sample.expand(K, -1), 0.0)


def _of_features(own: ValueProblem, truth: TrueBehaviour, projection: Projection | None) -> Estimated:
    """w = E_{d^π}[B]ᵀ C⁻¹ B(s), C = E_ρ[BBᵀ]: the true ratio's projection onto the span of B."""
    evidence, model = own.evidence, own.model
    B = prompt.backward_features(model, evidence.obs).double()
    inverse = torch.linalg.pinv(B.mT @ B / len(B), rtol=1e-10, hermitian=True)
    w = truth.features @ inverse @ B.mT + model.measure.offset  # [K, N]
    mean = w @ evidence.rewards.double().mT / len(B)
    occupancy = None
    if projection is not None and own.layout is not None:
        occupancy = projection.histogram(evidence.obs, own.layout, w)
    return Estimated(ValueEstimate(mean, torch.zeros_like(mean)), occupancy, 0.0)


def _of_rollouts(truth: TrueBehaviour, seconds: float) -> Estimated:
    """What the first half of the true episodes says."""
    half = truth.discounted[..., : truth.discounted.shape[-1] // 2]
    value = ValueEstimate(half.mean(-1), half.std(-1) / half.shape[-1] ** 0.5)
    return Estimated(value, truth.occupancy[0], seconds / 2)


def run(
    models: Sequence[str],
    *,
    data: Sequence[Path] = (),
    estimators: Sequence[str] = (),
    episodes: int = 64,
    seed: int = 0,
    network_steps: int | None = None,
    out: Path = Path("results"),
    work: Path = Path("runs/ratios"),
    publish: Path | None = None,
    console: Console | None = None,
) -> list[Judgement]:
    """Judge estimators (all of them unless named) on every model, and write tables, figures and a page."""
    if not models:
        raise ZolError("no model to look at: give checkpoint folders or names of the zoo")
    if episodes < 4 or episodes % 2:
        raise ZolError(f"{episodes} episodes cannot be halved: give an even number, 4 or more")
    for place in (out, work, *([publish.parent] if publish else [])):
        require_place(place)
    require("scipy.stats", "ranking", "The rank correlation")
    wanted = list(estimators or ESTIMATORS)
    for name in wanted:
        ESTIMATORS[name]  # an unknown one is refused before anything is played
    sets = _by_world(data)
    lines: list[Judgement] = []
    with progress_bar(quiet=console is not None and console.quiet) as progress:
        console = console or progress.console
        bar = Ticker(progress, "models", len(models))
        for model in models:
            lines += judge_model(model, sets, episodes, seed, wanted, network_steps, work, console, progress)
            bar.advance()
    told = of_numbers() | {"seed of pools": seed, "true episodes per latent": episodes}
    told |= {"gradient steps of estimators that learn": network_steps} if network_steps else {}
    write_results(lines, told, out, publish, console)
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
    data: tuple[Path, ...] = (),
    estimators: tuple[str, ...] = (),
    episodes: int = 64,
    seed: int = 0,
    network_steps: int | None = None,
    out: Path = Path("results"),
    work: Path = Path("runs/ratios"),
    publish: Path | None = None,
) -> None:
    """Compare density ratios and offline values of latents with true occupancies and returns.

    Writes ratios.csv (one row per model, task and estimator), ratios.md, ratios.png and ratios.json (how well
    each estimator did on each world). Interrupted, the same command goes on where it stopped.

    Args:
        models: checkpoint folders or names of the zoo
        data: datasets with whole transitions, for models whose own sample holds states only (the zoo's)
        estimators: names of estimators; all that apply unless told
        episodes: true episodes per latent; half of them judge the other half
        seed: of the pools and of start states
        network_steps: gradient steps of estimators that learn; their own unless told
        out: folder for tables and figures
        work: folder of finished pieces
        publish: a second place for ratios.json: src/zol/value/accuracy.json is what zol itself quotes
    """
    run(
        models,
        data=data,
        estimators=estimators,
        episodes=episodes,
        seed=seed,
        network_steps=network_steps,
        out=out,
        work=work,
        publish=publish,
    )


RATIOS = Benchmark(ratios, {"donut": tuple(DONUT), **TASKS})
