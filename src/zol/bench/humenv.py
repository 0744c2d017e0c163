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
from zol.common.errors import ZolError
from zol.common.outputs import require_place
from zol.common.progress import Ticker, progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.data.motion import Motion
from zol.data.sources.humenv import read_buffer, read_goals, read_motion_files
from zol.evidence import Evidence
from zol.models.base import Model
from zol.report import Scores, per_task, print_table, summary
from zol.rollout import evaluate
from zol.schedule import hold
from zol.tasks.humenv_metrics import goal_scores, tracking_scores
from zol.tracking import follow_all, play
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
    world: World,
    model: Model,
    goals: Mapping[str, Tensor],
    *,
    episodes: int = 50,
    seed: int = 0,
    steps: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Success, proximity and distance ``[G, E]`` of reaching each of the named observations ``[D]``."""
    world.reset(episodes, torch.Generator().manual_seed(seed))
    physics = world.physics.clone()
    rows, bar = [], Ticker(progress, "goals", len(goals))
    for goal in goals.values():
        plan = hold(prompt.goal(model, goal))
        visited = play(world, model, plan, physics, world.episode_length if steps is None else steps)
        rows.append(goal_scores(visited, goal))
        bar.advance()
    return _stack(rows)


def tracking_benchmark(
    world: World,
    model: Model,
    motions: Sequence[Motion],
    window: int = 8,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Tracking scores ``[M]`` of every motion."""

    def latents(motion: Motion) -> Tensor:
        return prompt.tracking(model, motion.obs, window)

    visited = follow_all(world, model, motions, latents, progress)
    return _stack(
        [tracking_scores(seen, motion.obs[1:]) for seen, motion in zip(visited, motions, strict=True)]
    )


def _stack(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def humenv(
    model: str,
    buffer: Path | None = None,
    goals: Path | None = None,
    motions: tuple[Path, ...] = (),
    tasks: tuple[str, ...] = (),
    episodes: int = 50,
    samples: int = 100_000,
    steps: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """HumEnv's protocols: a model's own prompt against ZOL on 45 rewards, goals to reach, motions to track.

    Each protocol runs whose file is given: --buffer for rewards, --goals, --motions.

    Args:
        model: checkpoint folder of a Meta Motivo model, hf://facebook/metamotivo-S-1, or a run of zol's own
        buffer: inference buffer of that model (data/buffer_inference_500000.hdf5 in its repository), or a set
            of zol's own with simulator states, such as the folder replay of a run
        goals: poses to reach (goals.json or goals_obs_only.json of HumEnv's data preparation)
        motions: HDF5 files of motions to track, or a text file that lists some
        tasks: names of some reward tasks; all 45 unless told
        episodes: rollouts of each latent
        samples: rows of the buffer that latents are computed from
        steps: length of an episode; 300 unless told
        seed: of samples and start states
        out: where to save raw reward scores (.npz and .json)
    """
    if buffer is None and goals is None and not motions:
        raise ZolError("nothing to test: give --buffer (rewards), --goals or --motions")
    if out is not None:
        require_place(out.with_suffix(".npz"), folder=False)
    world, console = make("humenv"), terminal()
    clips = [motion for path in motions for motion in read_motion_files(path)]
    poses = None if goals is None else read_goals(goals, world.layout.obs_dim)
    network = load(model).model
    if (network.obs_dim, network.action_dim) != (world.layout.obs_dim, world.action_dim):
        raise ZolError(
            f"{model} has {network.obs_dim} observations and {network.action_dim} actions, HumEnv has "
            f"{world.layout.obs_dim} and {world.action_dim}: it was made for another body"
        )
    with progress_bar() as progress:
        if buffer is not None:
            dataset = (
                Dataset.open(buffer) if buffer.is_dir() else read_buffer(buffer, rows=samples, seed=seed)
            )
            scores, _ = reward_benchmark(
                world,
                network,
                dataset,
                tasks=tasks or None,
                episodes=episodes,
                samples=samples,
                seed=seed,
                steps=steps,
                progress=progress,
            )
            print_table(console, per_task(scores), f"HumEnv, mean return of {episodes} episodes")
            note = "one model: intervals cover start states, not pretraining seeds"
            print_table(console, summary(scores, "weighted"), caption=note)
            if out is not None:
                scores.save(out)
                console.print(f"raw scores: {out.with_suffix('.npz')}", highlight=False, soft_wrap=True)
        if poses is not None:
            reached = goal_benchmark(
                world, network, poses, episodes=episodes, seed=seed, steps=steps, progress=progress
            )
            each = {
                name: {key: float(v[k].mean()) for key, v in reached.items()} for k, name in enumerate(poses)
            }
            print_table(console, table(each, "goal"), f"HumEnv, goals: means of {episodes} episodes")
        if clips:
            tracked = tracking_benchmark(world, network, clips, network.config.window, progress=progress)
            each = {m.name: {key: float(v[k]) for key, v in tracked.items()} for k, m in enumerate(clips)}
            print_table(console, table(each, "motion"), "HumEnv, tracking")


def table(each: Mapping[str, Mapping[str, float]], what: str) -> tuple[list[str], list[list[str]]]:
    """Named rows of numbers and their mean, as a table."""
    names = list(next(iter(each.values())))
    rows = [[name, *(f"{row[key]:.3f}" for key in names)] for name, row in each.items()]
    mean = [f"{sum(row[key] for row in each.values()) / len(each):.3f}" for key in names]
    return [what, *names], [*rows, ["mean", *mean]]


HUMENV = Benchmark(humenv, methods=("weighted", "zol", "perturb"))
