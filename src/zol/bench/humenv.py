"""HumEnv's protocols: rewards (the model's own prompt against ZOL), goals and motions.

rewards   45 tasks, episodes of 300 steps from falls, the same starts for every method; latents from
          100,000 samples of the inference buffer, relabelled. "weighted" is the prompt that the
          FB-CPR models are published with; "perturb" moves it at random as far as ZOL does
goals     poses with zero velocity, from falls
tracking  one latent per step from the motion's own frames, from its first state, to its end
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.progress import Progress
from torch import Tensor

from zol import prompt
from zol.adapt import Adapted, ZOLConfig, perturbed, prompted, zol_search
from zol.bench.benchmark import Benchmark
from zol.checkpoint import load
from zol.common.outputs import require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.data.motion import Motion
from zol.data.sources.humenv import read_buffer
from zol.evidence import Evidence
from zol.models.base import Model
from zol.report import Scores, per_task, print_table, summary
from zol.rollout import evaluate
from zol.schedule import follow, hold
from zol.tasks.humenv_metrics import goal_scores, tracking_scores
from zol.tracking import play
from zol.worlds import make
from zol.worlds.base import World, find_task

STARTS = 256
TASKS_AT_ONCE = 5  # × methods × episodes environments in one batch, which bounds memory


def reward_benchmark(
    world: World,
    model: Model,
    dataset: Dataset,
    *,
    tasks: Sequence[str] | None = None,
    episodes: int = 50,
    samples: int = 100_000,
    config: ZOLConfig | None = None,
    seed: int = 0,
    steps: int | None = None,
    progress: Progress | None = None,
) -> tuple[Scores, dict[str, Adapted]]:
    """Returns of the published prompt, ZOL from it, and random moves of ZOL's size, on the same starts."""
    names = list(world.tasks) if tasks is None else list(tasks)
    generator = torch.Generator().manual_seed(seed)
    starts = world.reset(STARTS, generator).obs.float()
    evidence = Evidence.gather(
        dataset,
        {name: find_task(world, name) for name in names},
        world.layout,
        samples=min(samples, len(dataset)),
        starts=STARTS,
        generator=generator,
    )
    evidence = replace(evidence, starts=starts)
    first = prompted(model, evidence, "weighted")
    searched = zol_search(model, evidence, first.z[0], config, progress=progress)
    moved = perturbed(model, evidence, first.z[0], searched.distance[0], generator)
    methods = {"weighted": first, "zol": searched, "perturb": moved}
    groups = []
    for begin in range(0, len(names), TASKS_AT_ONCE):
        group = names[begin : begin + TASKS_AT_ONCE]
        latents = [method.latent(name) for method in methods.values() for name in group]
        # A generator of the same seed for each group: every task and method meets the same falls.
        falls = torch.Generator().manual_seed(seed + 1)
        played = evaluate(
            world, model, latents, episodes=episodes, generator=falls, steps=steps, progress=progress
        )
        groups.append(played.returns.reshape(len(methods), 1, len(group), episodes))
    returns = torch.cat(groups, dim=2).double().numpy()
    values = dict(zip(methods, returns, strict=True))
    facts = {"world": world.name, "episodes": episodes, "samples": len(evidence.obs), "seed": seed}
    return Scores(tuple(names), values, facts), methods


def goal_benchmark(
    world: World, model: Model, goals: Tensor, *, episodes: int = 50, seed: int = 0, steps: int | None = None
) -> dict[str, Tensor]:
    """Success, proximity and distance ``[G, E]`` of reaching each of the observations ``[G, D]``."""
    world.reset(episodes, torch.Generator().manual_seed(seed))
    physics = world.physics.clone()
    rows = []
    for goal in goals.float():
        plan = hold(prompt.goal(model, goal))
        visited = play(world, model, plan, physics, world.episode_length if steps is None else steps)
        rows.append(goal_scores(visited, goal))
    return _stack(rows)


def tracking_benchmark(
    world: World, model: Model, motions: Sequence[Motion], window: int = 8
) -> dict[str, Tensor]:
    """Tracking scores ``[M]`` of every motion."""
    rows = []
    for motion in motions:
        plan = follow(prompt.tracking(model, motion.obs, window))
        visited = play(world, model, plan, motion.physics[:1], len(motion.obs) - 1)
        rows.append(tracking_scores(visited[0], motion.obs[1:]))
    return _stack(rows)


def _stack(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def humenv(
    model: str,
    buffer: Path,
    tasks: tuple[str, ...] = (),
    episodes: int = 50,
    samples: int = 100_000,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare a model's own prompt with ZOL on the 45 reward tasks of HumEnv.

    Args:
        model: checkpoint folder of a Meta Motivo model, or hf://facebook/metamotivo-S-1
        buffer: inference buffer of that model (data/buffer_inference_500000.hdf5 in its repository)
        tasks: names of some tasks; all 45 unless told
        episodes: rollouts of each latent
        samples: rows of the buffer that latents are computed from
        seed: of samples and start states
        out: where to save raw scores (.npz and .json)
    """
    if out is not None:
        require_place(out.with_suffix(".npz"), folder=False)
    world = make("humenv")
    network = load(model).model
    dataset = read_buffer(buffer, rows=samples, seed=seed)
    with progress_bar() as progress:
        scores, _ = reward_benchmark(
            world,
            network,
            dataset,
            tasks=tasks or None,
            episodes=episodes,
            samples=samples,
            seed=seed,
            progress=progress,
        )
    console = terminal()
    print_table(console, per_task(scores), f"HumEnv, mean return of {episodes} episodes")
    note = "one model: intervals cover start states, not pretraining seeds"
    print_table(console, summary(scores, "weighted"), caption=note)
    if out is not None:
        scores.save(out)
        console.print(f"raw scores: {out.with_suffix('.npz')}", highlight=False, soft_wrap=True)


HUMENV = Benchmark(humenv, methods=("weighted", "zol", "perturb"))
