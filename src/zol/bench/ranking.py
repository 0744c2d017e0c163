r"""Which offline estimate can be trusted to choose between latents? Estimates against true returns.

For every task a pool of latents is played in the world, and valued offline in three ways (zol.value):

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
from pathlib import Path

import torch
import tyro
from rich.console import Console
from torch import Tensor

from zol import value
from zol.adapt.candidates import candidate_latents
from zol.adapt.paper_settings import TASKS
from zol.adapt.problem import Problem
from zol.adapt.rehearse import RehearsalConfig
from zol.bench.benchmark import Benchmark
from zol.bench.conditions import Conditions, open_model
from zol.bench.ranking_figure import draw
from zol.common.errors import ZolError
from zol.common.provenance import of_numbers
from zol.imagination.rollouts import Imagination
from zol.models.base import Latent, model_hash
from zol.report import table
from zol.rollout import evaluate
from zol.value import Worth
from zol.worlds import make
from zol.worlds.base import World

NEAR, RANDOM, GOALS = 10, 8, 6
STEP = 0.4  # size of the random moves, relative to a latent's length


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


def pool(problem: Problem) -> Tensor:
    """Latents ``[T, K, d]``; the first is plain FB's, the next ``NEAR`` are moves of it."""
    model, generator = problem.model, problem.generator("ranking")
    z0 = problem.start.unsqueeze(1)
    noise = torch.randn(len(z0), NEAR, model.z_dim, generator=generator)
    strangers = torch.randn(len(z0), RANDOM, model.z_dim, generator=generator)
    prompts = candidate_latents(model, problem.evidence, goals=GOALS)[:, 1:]
    return torch.cat([z0, model.project(z0 + STEP * noise), prompts, model.project(strangers)], dim=1)


def estimates(problem: Problem, latents: Tensor) -> dict[str, Worth]:
    """Worth ``[T, K]`` of every latent on its own task, by each estimator."""
    learned, c = problem.learned_world(), RehearsalConfig()
    names = problem.evidence.tasks
    tasks = [problem.tasks[name] for name in names]
    starts = learned.starts[: 2 * c.starts]
    room = Imagination(problem.model, learned.dynamics, problem.layout, tasks, starts, c.horizon)
    found: dict[str, Worth] = {}
    rows = latents.flatten(0, 1)
    by: Mapping[str, Worth] = {
        "ratio": value.by_ratio(problem.model, problem.evidence, rows),
        "value": value.by_value(problem.model, problem.evidence, rows),
        "imagination": value.by_imagination(room, rows, problem.generator("ranking rollouts")),
    }
    own = torch.arange(len(names))
    for name, worth in by.items():
        mean, error = (x.reshape(*latents.shape[:2], -1)[own, :, own] for x in (worth.mean, worth.error))
        found[name] = Worth(mean, error)
    return found


def true_rewards(
    problem: Problem, world: World, latents: Tensor, episodes: int, generator: torch.Generator
) -> Tensor:
    """Mean reward per step ``[T, K]`` in the world."""
    identity = model_hash(problem.model)  # type: ignore[arg-type]
    wanted = [
        Latent(z, identity, name, "ranking")
        for name, row in zip(problem.evidence.tasks, latents, strict=True)
        for z in row
    ]
    played = evaluate(world, problem.model, wanted, episodes=episodes, generator=generator)
    return (played.returns.mean(1) / world.episode_length).reshape(latents.shape[:2]).float()


def judge(problem: Problem, found: Mapping[str, Worth], truth: Tensor) -> list[Judgement]:
    """One line per task and estimator."""
    lines = []
    for name, worth in found.items():
        for t, task in enumerate(problem.evidence.tasks):
            guess, real = worth.mean[t], truth[t]
            inside = (real >= worth.low[t]) & (real <= worth.high[t])
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
    a, b = (_ranks(v) - (len(v) - 1) / 2 for v in (x.double(), y.double()))
    scale = float(a.norm() * b.norm())
    return float((a * b).sum()) / scale if scale > 0 else 0.0


def _ranks(v: Tensor) -> Tensor:
    below = (v.unsqueeze(0) < v.unsqueeze(1)).sum(1).double()
    equal = (v.unsqueeze(0) == v.unsqueeze(1)).sum(1).double()
    return below + (equal - 1) / 2


def means(lines: Sequence[Judgement], estimator: str, field: str) -> float:
    """The mean of one column over the lines of an estimator."""
    values = [float(getattr(line, field)) for line in lines if line.estimator == estimator]
    return sum(values) / len(values)


def ranking(
    models: tyro.conf.Positional[tuple[str, ...]],
    episodes: int = 10,
    out: Path = Path("results"),
    seed: int = 0,
) -> None:
    """Compare offline estimates of latents (ratio, value, imagination) with what they truly earn.

    Writes ranking.csv (one row per task and estimator), ranking_points.csv (every latent) and ranking.png.

    Args:
        models: checkpoint folders with a learned world, or names of the zoo
        episodes: true episodes per latent
        out: folder for the results
        seed: of the pool of latents
    """
    if not models:
        raise ZolError("no model to look at: give checkpoint folders or names of the zoo")
    console, conditions = Console(), Conditions(seed=seed)
    lines: list[Judgement] = []
    points: list[dict[str, object]] = []
    for name in models:
        subject = open_model(name, conditions)
        world = make(subject.domain)
        problem = subject.problem()
        latents = pool(problem)
        console.print(f"{name}: {latents.shape[1]} latents for each of {len(subject.evidence.tasks)} tasks")
        found = estimates(problem, latents)
        truth = true_rewards(problem, world, latents, episodes, torch.Generator().manual_seed(seed + 1))
        lines += judge(problem, found, truth)
        for t, task in enumerate(problem.evidence.tasks):
            for k in range(latents.shape[1]):
                guesses = {by: float(worth.mean[t, k]) for by, worth in found.items()}
                facts = {"model": subject.identity, "domain": subject.domain, "task": task, "latent": k}
                points.append(facts | {"true": float(truth[t, k])} | guesses)
    told = of_numbers() | {"seed of the pools": seed, "true episodes per latent": episodes}
    out.mkdir(parents=True, exist_ok=True)
    for file, rows in (("ranking.csv", [asdict(line) for line in lines]), ("ranking_points.csv", points)):
        with (out / file).open("w", newline="") as stream:
            stream.writelines(f"# {name}: {value}\n" for name, value in told.items())
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    draw(points, out / "ranking.png")
    shown = ("spearman", "spearman_near", "regret", "plain_regret", "bias", "error", "coverage")
    cells = [
        [by, *(f"{means(lines, by, column):.2f}" for column in shown)]
        for by in ("ratio", "value", "imagination")
    ]
    console.print(table((["estimator", *shown], cells), "means over tasks; rewards per step"))
    console.print(f"tables and figure are in {out}", soft_wrap=True)


RANKING = Benchmark(ranking, TASKS)
