"""Pretraining in a world, beside demonstrations: what ``zol.pretrain`` is for models that learn from data.

    agent = pretrain_online("fb_cpr", "walker", "demos/walker", out="runs/cpr")

The loop is the one of all models (zol.train.loop). Batches come from :class:`zol.collect.online.Online`,
which acts in the world between updates and keeps everything in the run's folder as a set, ``replay``.
"""

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from zol import tracking
from zol.checkpoint import Checkpoint
from zol.collect.demonstrations import Demonstrations
from zol.collect.online import Online, OnlineConfig
from zol.common.errors import DataError
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.models.fb_cpr import FBCPRLearner
from zol.models.network import Network
from zol.session import Agent
from zol.train.acting import begun, finished, plan_online, returns, told_apart
from zol.train.loop import TrainConfig, fit
from zol.train.planning import Plan
from zol.worlds import make
from zol.worlds.base import World

REPLAY = "replay"  # folder of the set, in that of the run
MOTIONS, FRAMES = 50, 300  # at most so many motions are tracked during training, so many steps of each


def pretrain_online(
    model: str,
    world: World | str,
    demonstrations: Dataset | str | Path | None,
    *,
    out: str | Path | None = None,
    steps: int | None = None,
    preset: str = "auto",
    seed: int = 0,
    episodes: int = 0,
    device: str = "auto",
    threads: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Agent:
    """Pretrain an online model of ``MODELS`` in a world; the agent that it makes.

    ``settings`` are fields of ``TrainConfig``, ``OnlineConfig`` and of the model's configuration. An
    unfinished run in ``out`` is continued. ``episodes`` test episodes per task make a learning curve.
    """
    chosen = make(world) if isinstance(world, str) else world
    found = plan_online(model, chosen.name, preset=preset, device=device)
    training, online, own = told_apart(found, settings, OnlineConfig, steps=steps, seed=seed)
    trained = execute_online(
        found,
        chosen,
        demonstrations,
        out=out,
        training=training,
        settings=own,
        online=online,
        episodes=episodes,
        device=device,
        threads=threads,
        progress=progress,
    )
    return Agent(trained, path="this model" if out is None else str(out))


def open_demonstrations(given: Dataset | str | Path | None, window: int) -> Demonstrations:
    """The demonstrations, or a sentence that says what is missing."""
    if given is None:
        raise DataError(
            "FB-CPR learns from demonstrations, and none were given: --demonstrations SET (zol demonstrate "
            "records some; episodes of any dataset will do, whose actions are not read)"
        )
    return Demonstrations(given if isinstance(given, Dataset) else Dataset.open(given), window)


def execute_online(
    plan: Plan,
    world: World,
    demonstrations: Dataset | str | Path | None,
    *,
    out: str | Path | None,
    training: TrainConfig,
    settings: Mapping[str, Any],
    online: OnlineConfig,
    episodes: int = 0,
    device: str = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> Checkpoint:
    """Train as planned; what cannot work is said before the first step in the world."""
    config = plan.entry.config(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, **settings)
    shown = open_demonstrations(demonstrations, config.window)  # type: ignore[attr-defined]
    shown.require_fit(world, frames=online.frame_share > 0)
    if online.random_steps < training.batch_size:
        raise DataError(
            f"{online.random_steps} random steps do not fill a batch of {training.batch_size}: raise "
            "--random-steps"
        )
    with ExitStack() as stack:
        learner = stack.enter_context(begun(plan, config, training, out=out, device=device, threads=threads))
        assert isinstance(learner, FBCPRLearner)
        network = learner.model
        bar = stack.enter_context(progress_bar()) if progress is None else progress
        bar.console.print(_what(plan, network, shown, training), highlight=False, soft_wrap=True)
        feed = Online(
            learner,
            world,
            shown,
            online,
            folder=None if out is None else Path(out) / REPLAY,
            seed=training.seed,
            track=_tracker(world, network, shown),
            progress=bar,
        )
        stack.enter_context(closing(feed))
        facts = _facts(plan, world, feed, episodes)
        prompted = returns(
            world, learner, feed, episodes=episodes, seed=training.seed, prompt=plan.entry.prompt
        )

        def test(step: int) -> dict[str, float]:
            """What prompts earn, and the error of tracking motions."""
            tracked = {} if feed.track is None else {"tracking/emd": float(feed.track().mean())}
            return prompted(step) | tracked

        on_eval = test if episodes else None
        fit(learner, feed.begun, training, out, facts=facts, on_eval=on_eval, progress=bar, feed=feed)
        sample = feed.prompt_sample(training.seed)
    if out is not None:
        terminal().print(f"the checkpoint is in {out}", highlight=False, soft_wrap=True)
    return finished(out, learner, facts, sample)


def _what(plan: Plan, network: Network, shown: Demonstrations, training: TrainConfig) -> str:
    weights, motions = sum(p.numel() for p in network.parameters()), shown.dataset.episodes
    return (
        f"preset {plan.preset}: {weights:,} weights, {motions:,} motions of {len(shown.dataset):,} steps, "
        f"batch {training.batch_size}, {training.steps:,} steps"
    )


def _facts(plan: Plan, world: World, feed: Online, episodes: int) -> dict[str, Any]:
    shown = feed.demonstrations.dataset
    return {
        "preset": plan.preset,
        "world": world.name,
        "episodes": episodes,
        "prompt": plan.entry.prompt,
        "online": feed.config.model_dump(mode="json"),
        "demonstrations": f"{shown.episodes:,} motions, {len(shown):,} steps, {shown.fingerprint()}",
    }


def _tracker(world: World, network: Network, shown: Demonstrations) -> Callable[[], Tensor] | None:
    """The error of tracking each motion now, ``[E]``; None where motions have no simulator states."""
    if "physics" not in shown.dataset.columns:
        return None
    motions = tracking.motions_of(shown.dataset, MOTIONS, FRAMES)
    scale = tracking.scale_of(motions)

    def errors() -> Tensor:
        model = copy.deepcopy(network).cpu()
        found = tracking.track(world, model, motions, window=shown.window, scale=scale)["emd"]
        rest = shown.dataset.episodes - len(motions)  # those beyond the limit count as the average one
        return torch.cat([found, found.mean().expand(rest)])

    return errors
