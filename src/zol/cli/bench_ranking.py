"""``zol bench ranking``: which offline estimate of a latent can be trusted."""

import csv
from dataclasses import asdict
from pathlib import Path

import tyro
from rich.console import Console


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
    import torch

    from zol.bench.conditions import Conditions, open_model
    from zol.bench.ranking import Judgement, estimates, judge, means, pool, true_rewards
    from zol.bench.ranking_figure import draw
    from zol.common.errors import ZolError
    from zol.common.provenance import of_numbers
    from zol.report import table
    from zol.worlds import make

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
