r"""Which offline estimate can be relied on to choose between latents? Estimates against true returns.

For every task a pool of latents is played in the world and valued offline by each estimator (zol.value):

    near       plain FB's latent and random moves of it: where searches look
    prompts    correlation, ridge, weighted, of raw and centred rewards
    goals      Π(B(s)) of states with the highest rewards
    random     Π(ε)

An estimator is judged by the rank correlation of its values with true mean rewards, over the whole pool and
near plain FB's latent, by the regret of its first choice (best of the pool minus its choice, in true
reward), and by calibration: bias, mean absolute error, and how often its 95 % interval holds the truth.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path

import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol.adapt.candidates import candidate_latents
from zol.adapt.paper_settings import TASKS
from zol.adapt.problem import Problem
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import Conditions, open_model
from zol.bench.ranking_figure import draw
from zol.common.errors import ZolError
from zol.common.extras import require
from zol.common.files import write_bytes
from zol.common.outputs import require_place
from zol.common.progress import Ticker, progress_bar
from zol.common.provenance import of_numbers
from zol.models.base import Latent, identity
from zol.report import print_table
from zol.rollout import evaluate
from zol.value import ESTIMATORS, ValueEstimate, ValueProblem
from zol.worlds import make
from zol.worlds.base import World

NEAR, RANDOM, GOALS = 10, 8, 6
STEP = 0.4  # size of the random moves, relative to a latent's length
SHOWN = ("spearman", "spearman_near", "regret", "plain_regret", "bias", "error", "coverage")


@dataclass(frozen=True)
class Judgement:
    """How well one estimator did on one task."""

    domain: str
    task: str
    estimator: str
    spearman: float
    spearman_near: float
    regret: float  # in reward per step
    plain_regret: float  # of plain FB's latent, for comparison
    bias: float
    error: float  # mean absolute
    coverage: float  # share of intervals that hold the truth


def run(
    models: Sequence[str],
    *,
    episodes: int = 10,
    out: Path = Path("runs/ranking"),
    seed: int = 0,
    console: Console | None = None,
) -> list[Judgement]:
    """Judge every estimator on every model; write ranking.csv, ranking_points.csv and ranking.png to ``out``.

    ``models`` are checkpoint folders or names of the zoo, ``episodes`` true episodes per latent, and ``seed``
    that of the pools. Estimators that a model lacks something for are left out, with a word on what it lacks.
    """
    if not models:
        raise ZolError("no model to look at: give checkpoint folders or names of the zoo")
    require_place(out)
    require("scipy.stats", "ranking", "The rank correlation")
    lines: list[Judgement] = []
    points: list[dict[str, object]] = []
    with progress_bar(quiet=console is not None and console.quiet) as progress:
        console = console or progress.console  # prints above the bar instead of through it
        bar = Ticker(progress, "models", len(models))
        for name in models:
            judged, seen = _judge_model(name, episodes, seed, console, progress)
            lines += judged
            points += seen
            bar.advance()
    told = of_numbers() | {"seed of the pools": seed, "true episodes per latent": episodes}
    write_table(out / "ranking.csv", told, [asdict(line) for line in lines])
    write_table(out / "ranking_points.csv", told, points)
    used = [name for name in ESTIMATORS if any(line.estimator == name for line in lines)]
    draw(points, used, out / "ranking.png")
    cells = [[by, *(f"{means(lines, by, column):.2f}" for column in SHOWN)] for by in used]
    print_table(console, (["estimator", *SHOWN], cells), "means over tasks; rewards per step")
    console.print(f"tables and figure are in {out}", soft_wrap=True)
    return lines


def _judge_model(
    name: str, episodes: int, seed: int, console: Console, progress: Progress
) -> tuple[list[Judgement], list[dict[str, object]]]:
    """The lines of one model, and a row for each of its latents."""
    subject = open_model(name, Conditions(seed=seed))
    world, problem = make(subject.domain), subject.problem()
    latents = pool(problem)
    console.print(f"{name}: {latents.shape[1]} latents for each of {len(subject.evidence.tasks)} tasks")
    question = problem.value_problem("ranking rollouts")
    for by, estimator in ESTIMATORS.items():
        if lacking := estimator.missing(question):
            console.print(f"  {by} is left out, it needs {lacking}", soft_wrap=True)
    found = estimates(question, latents, progress)
    generator = torch.Generator().manual_seed(seed + 1)
    truth = true_rewards(problem, world, latents, episodes, generator, progress)
    points: list[dict[str, object]] = []
    for t, task in enumerate(problem.evidence.tasks):
        for k in range(latents.shape[1]):
            guesses = {by: float(estimate.mean[t, k]) for by, estimate in found.items()}
            facts = {"model": subject.identity, "domain": subject.domain, "task": task, "latent": k}
            points.append(facts | {"true": float(truth[t, k])} | guesses)
    return judge(problem, found, truth), points


def pool(problem: Problem) -> Tensor:
    """Latents ``[T, K, d]``; the first is plain FB's, the next ``NEAR`` are moves of it."""
    model, generator = problem.model, problem.generator("ranking")
    z0 = problem.start.unsqueeze(1)
    noise = torch.randn(len(z0), NEAR, model.z_dim, generator=generator)
    random = torch.randn(len(z0), RANDOM, model.z_dim, generator=generator)
    prompts = candidate_latents(model, problem.evidence, goals=GOALS)[:, 1:]
    return torch.cat([z0, model.project(z0 + STEP * noise), prompts, model.project(random)], dim=1)


def estimates(
    problem: ValueProblem, latents: Tensor, progress: Progress | None = None
) -> dict[str, ValueEstimate]:
    """The value ``[T, K]`` of latents ``[T, K, d]`` on their own tasks, by each estimator that is usable.

    Those that train networks for every latent would take hours for these pools: ``zol bench ratios``.
    """
    usable = {n: one for n, one in ESTIMATORS.items() if not one.learns and not one.missing(problem)}
    bar = Ticker(progress, "estimates", len(usable))
    own = torch.arange(len(latents))
    found = {}
    for name, estimator in usable.items():
        every = estimator.estimate(problem, latents.flatten(0, 1))  # [T·K, T]
        mean, error = (x.reshape(*latents.shape[:2], -1)[own, :, own] for x in (every.mean, every.error))
        found[name] = ValueEstimate(mean, error)
        bar.advance()
    return found


def true_rewards(
    problem: Problem,
    world: World,
    latents: Tensor,
    episodes: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Tensor:
    """Mean reward per step ``[T, K]`` in the world."""
    own = identity(problem.model)
    wanted = [
        Latent(z, own, name, "ranking")
        for name, row in zip(problem.evidence.tasks, latents, strict=True)
        for z in row
    ]
    played = evaluate(world, problem.model, wanted, episodes=episodes, generator=generator, progress=progress)
    return (played.returns.mean(1) / world.episode_length).reshape(latents.shape[:2]).float()


def judge(problem: Problem, found: Mapping[str, ValueEstimate], truth: Tensor) -> list[Judgement]:
    """One line per task and estimator."""
    lines = []
    for name, estimate in found.items():
        for t, task in enumerate(problem.evidence.tasks):
            guess, real = estimate.mean[t], truth[t]
            inside = (real >= estimate.low[t]) & (real <= estimate.high[t])
            lines.append(
                Judgement(
                    domain=problem.domain,
                    task=task,
                    estimator=name,
                    spearman=spearman(guess, real),
                    spearman_near=spearman(guess[: 1 + NEAR], real[: 1 + NEAR]),
                    regret=float(real.max() - real[guess.argmax()]),
                    plain_regret=float(real.max() - real[0]),
                    bias=float((guess - real).mean()),
                    error=float((guess - real).abs().mean()),
                    coverage=float(inside.float().mean()),
                )
            )
    return lines


def spearman(x: Tensor, y: Tensor) -> float:
    """Rank correlation, ties sharing their mean rank; 0 if either side is constant."""
    spearmanr = require("scipy.stats", "ranking", "The rank correlation").spearmanr
    if bool((x == x[0]).all() | (y == y[0]).all()):
        return 0.0
    return float(spearmanr(x.double().numpy(), y.double().numpy()).statistic)


def means(lines: Sequence[Judgement], estimator: str, field: str) -> float:
    """The mean of one column over the lines of an estimator."""
    values = [float(getattr(line, field)) for line in lines if line.estimator == estimator]
    return sum(values) / len(values)


def write_table(path: Path, told: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> None:
    """A table as CSV, below comments that say where its numbers come from."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    stream = StringIO(newline="")
    stream.writelines(f"# {name}: {value}\n" for name, value in told.items())
    writer = csv.DictWriter(stream, columns)
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, stream.getvalue().encode())


def ranking(
    models: tyro.conf.Positional[tuple[str, ...]],
    episodes: int = 10,
    out: Path = Path("runs/ranking"),
    seed: int = 0,
) -> None:
    """Compare every offline estimate of latents (zol.value) with what the latents truly earn.

    Writes ranking.csv (one row per task and estimator), ranking_points.csv (every latent) and ranking.png.

    Args:
        models: checkpoint folders with a learned world, or names of the zoo
        episodes: true episodes per latent
        out: folder for the results
        seed: of the pool of latents
    """
    run(models, episodes=episodes, out=out, seed=seed)


RANKING = Benchmark(ranking, TASKS)
