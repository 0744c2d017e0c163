"""``zol adapt``."""

from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console

from zol import checkpoint, report, zoo
from zol.adapt import Adapted, Evidence, ZOLConfig, prompted, rehearsed, zol
from zol.adapt.auto import zol_candidates
from zol.adapt.base import identity
from zol.errors import CheckpointError, DataError
from zol.rollout import evaluate
from zol.worlds import find_task, make
from zol.worlds.base import World

# what the table shows beside the estimate: title, diagnostic
RATIO = {"ESS": "ess", "negative": "negative_share", "mean ratio": "mean_ratio", "moved": "distance"}
REHEARSAL = {
    "trust": "trusted",
    "one-step miss": "missed",
    "changed": "changed",
    "imagined gain": "imagined_gain",
    "doubt": "doubt",
}
Method = Literal["auto", "rehearse", "zol", "fb", "ridge", "weighted"]
PROMPTS: dict[Method, Literal["correlation", "ridge", "weighted"]] = {
    "fb": "correlation",
    "ridge": "ridge",
    "weighted": "weighted",
}


def adapt(
    model: tyro.conf.Positional[str],
    task: tuple[str, ...] = (),
    method: Method = "auto",
    config: ZOLConfig = ZOLConfig(),  # noqa: B008
    starts: int = 256,
    episodes: int = 0,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Find the latent for a task, offline, from a checkpoint alone.

    Prints an offline estimate of the mean reward per step with its diagnostics; with --episodes also what the
    policy really earns in its world.

    Args:
        model: checkpoint folder, or a name of the zoo (zol zoo list)
        task: tasks of the checkpoint's world; all of them if none is named
        method: rehearse searches by playing latents in the checkpoint's learned world; zol is the paper's
            search; the others are closed-form prompts. auto is rehearse with a learned world, fb without
        config: settings of --method zol
        starts: start states that the ratio averages over
        episodes: test episodes per task; 0 tests nothing
        seed: of test episodes and of sampled μ states
        out: folder for the latents, one JSON file per task
    """
    console, path = Console(), zoo.find(model)
    loaded = checkpoint.load(path)
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
    if method == "auto":
        method = "rehearse" if loaded.dynamics is not None else "fb"
    found = _find(loaded, evidence, method, config, seed, world)
    names = REHEARSAL if method == "rehearse" else RATIO
    shown = {title: found.diagnostics[name][0] for title, name in names.items()}
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
    loaded: checkpoint.Checkpoint,
    evidence: Evidence,
    method: Method,
    config: ZOLConfig,
    seed: int,
    world: World,
) -> Adapted:
    model, generator = loaded.model, torch.Generator().manual_seed(seed)
    if method in PROMPTS:
        return prompted(model, evidence, PROMPTS[method])
    start = evidence.prompt(model)
    if method == "zol":
        return zol(model, evidence, start, config, generator=generator)
    if loaded.dynamics is None:
        raise CheckpointError(
            "this checkpoint holds no learned world to rehearse in: zol train dynamics --data … --out …, "
            "or choose another --method"
        )
    tasks = [find_task(world, name) for name in evidence.tasks]
    return rehearsed(
        model,
        loaded.dynamics,
        evidence,
        tasks,
        world.layout,
        generator=generator,
        others=lambda: zol_candidates(model, evidence, start, generator=generator),
    )
