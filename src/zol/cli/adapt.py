"""``zol adapt``."""

from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console

from zol import checkpoint, report
from zol.adapt import Adapted, Evidence, ZOLConfig, prompted, zol
from zol.adapt.base import identity
from zol.errors import CheckpointError, DataError
from zol.rollout import evaluate
from zol.worlds import find_task, make

# what the table shows beside the estimate: title, diagnostic
SHOWN = {"ESS": "ess", "negative": "negative_share", "mean ratio": "mean_ratio", "moved": "distance"}
Method = Literal["zol", "fb", "ridge", "weighted"]
PROMPTS: dict[Method, Literal["correlation", "ridge", "weighted"]] = {
    "fb": "correlation",
    "ridge": "ridge",
    "weighted": "weighted",
}


def adapt(
    path: tyro.conf.Positional[Path],
    task: tuple[str, ...] = (),
    method: Method = "zol",
    config: ZOLConfig = ZOLConfig(),  # noqa: B008
    starts: int = 256,
    episodes: int = 0,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Find the latent for a task, offline, from a checkpoint alone.

    Prints the ratio's estimate of the mean reward per step with its diagnostics; with --episodes also what
    the policy really earns in its world.

    Args:
        path: checkpoint folder
        task: tasks of the checkpoint's world; all of them if none is named
        method: the paper's search, or a closed-form prompt
        config: settings of the search
        starts: start states that the ratio averages over
        episodes: test episodes per task; 0 tests nothing
        seed: of test episodes and of sampled μ states
        out: folder for the latents, one JSON file per task
    """
    console, loaded = Console(), checkpoint.load(path)
    if "world" not in loaded.facts:
        raise CheckpointError(
            f"{path} does not name its world, so it has no named tasks: use zol from Python"
        )
    world = make(str(loaded.facts["world"]))
    wanted = [find_task(world, name) for name in task or world.tasks]
    evidence = Evidence.label(
        loaded.sample(world.layout),
        wanted,
        loaded.prompt["starts"][:starts],
        str(loaded.facts.get("data", "")),
    )
    evidence, silent = evidence.audible()
    if silent:
        note = f"no reward on any of {len(evidence.obs)} sampled states, left out: {', '.join(silent)}"
        if not evidence.tasks:
            raise DataError(f"{note}; nothing is left to adapt to")
        console.print(note, soft_wrap=True)
    found = _find(loaded.model, evidence, method, config, seed)
    shown = {title: found.diagnostics[name][0] for title, name in SHOWN.items()}
    columns = ["task", "estimate", *shown]
    rows = [
        [name, f"{found.estimate[0, t]:.3f}", *(f"{value[t]:.2f}" for value in shown.values())]
        for t, name in enumerate(evidence.tasks)
    ]
    if episodes:
        generator = torch.Generator().manual_seed(seed)
        result = evaluate(world, loaded.model, found.latents(), episodes=episodes, generator=generator)
        columns.insert(1, f"return of {episodes}")
        for row, earned in zip(rows, result.returns, strict=True):
            row.insert(1, str(report.bootstrap(earned.numpy()[None, None])))
    console.print(report.table((columns, rows), f"{method} on {world.name}, model {identity(loaded.model)}"))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for latent in found.latents():
            latent.save(out / f"{latent.task}.json")
        console.print(f"{len(evidence.tasks)} latents are in {out}", soft_wrap=True)


def _find(
    model: checkpoint.AnyModel, evidence: Evidence, method: Method, config: ZOLConfig, seed: int
) -> Adapted:
    if method != "zol":
        return prompted(model, evidence, PROMPTS[method])
    return zol(model, evidence, evidence.prompt(model), config, generator=torch.Generator().manual_seed(seed))
