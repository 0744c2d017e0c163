"""``zol adapt``."""

from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console

from zol import checkpoint, report
from zol.adapt import Adapted, ZOLConfig, prompted, rehearsed, zol
from zol.adapt.auto import zol_candidates
from zol.checkpoint import zoo
from zol.common.errors import CheckpointError, DataError
from zol.common.progress import progress_bar
from zol.evidence import Evidence
from zol.fields import Layout
from zol.models.base import identity
from zol.models.network import Network
from zol.rollout import evaluate, random_returns
from zol.tasks import Task
from zol.tasks.from_file import task_from_file
from zol.worlds import find_task, make
from zol.worlds.base import World

# what the table shows beside the estimate: title, diagnostic
RATIO = {"ESS": "ess", "negative": "negative_share", "mean ratio": "mean_ratio", "moved": "distance"}
REHEARSAL = {
    "trust": "trusted",
    "miss": "missed",
    "changed": "changed",
    "gain": "imagined_gain",
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
    reward: tuple[str, ...] = (),
    method: Method = "auto",
    config: ZOLConfig = ZOLConfig(),  # noqa: B008
    starts: int = 256,
    episodes: int = 0,
    seed: int = 0,
    out: Path | None = None,
    video: Path | None = None,
) -> None:
    """Find the latent for a task or for a reward of your own, offline, from a checkpoint alone.

    Prints an offline estimate of the mean reward per step with its diagnostics; with --episodes also what the
    policy really earns in its world, beside random actions.

    A reward of your own is a function of states in a Python file, one number per state:

        def backwards(s): return (-s["speed"]).clamp(0, 1)

    zol worlds show WORLD lists what s[...] knows; a checkpoint without a world knows s["obs"].

    Args:
        model: checkpoint folder, or a name of the zoo (zol zoo list)
        task: tasks of the checkpoint's world; all of them if nothing is named
        reward: your own, as FILE.py:NAME; the file is run
        method: rehearse searches by playing latents in the checkpoint's learned world; zol is the paper's
            search; the others are closed-form prompts. auto is rehearse with a learned world, fb without
        config: settings of --method zol
        starts: start states that the ratio averages over
        episodes: test episodes per task; 0 tests nothing
        seed: of test episodes and of sampled μ states
        out: folder for the latents, one JSON file per task
        video: folder for films of one episode, TASK.mp4 each (MuJoCo worlds; about 20 s per task)
    """
    console, path = Console(), zoo.find(model)
    loaded = checkpoint.load(path)
    world = make(str(loaded.facts["world"])) if "world" in loaded.facts else None
    if world is None and (episodes or video):
        raise CheckpointError(
            f"{path} does not name its world, so nothing can be tested or filmed: --episodes 0, no --video"
        )
    wanted = _wanted(path, world, task, reward)
    layout = world.layout if world is not None else Layout.plain(loaded.model.obs_dim)
    evidence = Evidence.label(
        loaded.sample(layout),
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
    heard = [task for task in wanted if task.name in evidence.tasks]
    with console.status(f"{method}: {', '.join(evidence.tasks)}"):
        found = _find(loaded, evidence, heard, layout, method, config, seed)
    names = REHEARSAL if method == "rehearse" else RATIO
    shown = {title: found.diagnostics[name][0] for title, name in names.items()}
    columns = ["task", "estimate", *shown]
    rows = [
        [name, f"{found.estimate[0, t]:.3f}", *(f"{value[t]:.2f}" for value in shown.values())]
        for t, name in enumerate(evidence.tasks)
    ]
    if world is not None and episodes:
        columns[1:1] = [f"return of {episodes}", "random"]
        for row, cells in zip(rows, _tested(world, loaded.model, found, heard, episodes, seed), strict=True):
            row[1:1] = cells
    where = path if world is None else world.name
    console.print(report.table((columns, rows), f"{method} on {where}, model {identity(loaded.model)}"))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for latent in found.latents():
            latent.save(out / f"{latent.task}.json")
        console.print(f"{len(evidence.tasks)} latents are in {out}", soft_wrap=True)
    if world is not None and video is not None:
        from zol.film import film  # OpenGL, which nothing else here needs

        generator = torch.Generator().manual_seed(seed)
        with progress_bar() as progress:
            films = film(world, loaded.model, found.latents(), video, generator=generator, progress=progress)
        console.print(f"films: {', '.join(map(str, films))}", soft_wrap=True)


def _wanted(path: Path, world: World | None, names: tuple[str, ...], rewards: tuple[str, ...]) -> list[Task]:
    """The tasks to adapt to. Rewards of the user's own become tasks of the world, and testable."""
    if world is None and (names or not rewards):
        raise CheckpointError(
            f"{path} does not name its world, so it has no named tasks: bring a reward of your own, "
            "--reward FILE.py:NAME"
        )
    own = {task.name: task for task in map(task_from_file, rewards)}
    if len(own) < len(rewards):
        raise DataError(f"rewards need names of their own, got {', '.join(rewards)}")
    if world is None:
        return list(own.values())
    for name in own.keys() & world.tasks.keys():
        raise DataError(f"{world.name} has a task '{name}' of its own: give your reward another name")
    world.tasks = {**world.tasks, **own}
    chosen = names if names or own else tuple(world.tasks)
    return [find_task(world, name) for name in (*chosen, *own)]


def _tested(
    world: World, model: Network, found: Adapted, tasks: list[Task], episodes: int, seed: int
) -> list[list[str]]:
    """Per task: what its latent earns, with an interval, and what random actions earn."""
    generator = torch.Generator().manual_seed(seed)
    with progress_bar() as progress:
        played = evaluate(
            world, model, found.latents(), episodes=episodes, generator=generator, progress=progress
        )
    generator = torch.Generator().manual_seed(seed)
    chance = random_returns(world, tasks, episodes=episodes, generator=generator).mean(-1)
    return [
        [str(report.bootstrap(earned.numpy()[None, None])), report.number(random)]
        for earned, random in zip(played.returns, chance.tolist(), strict=True)
    ]


def _find(
    loaded: checkpoint.Checkpoint,
    evidence: Evidence,
    tasks: list[Task],
    layout: Layout,
    method: Method,
    config: ZOLConfig,
    seed: int,
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
    return rehearsed(
        model,
        loaded.dynamics,
        evidence,
        tasks,
        layout,
        generator=generator,
        others=lambda: zol_candidates(model, evidence, start, generator=generator),
    )
