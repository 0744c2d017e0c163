"""Pretraining by practice: what ``zol.pretrain`` is for models that learn from data.

    agent = pretrain_by_practice("prior_features", "walker", out="runs/walker")

The loop is the one of all models (zol.train.loop). Batches come from
:class:`zol.collect.practice.Practice`, which acts in the world between updates and keeps everything in the
run's folder as a set, ``practice``. No task of the world is looked at, but what comes out is not learned from
a fixed set, and is labelled so.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.progress import Progress

from zol.checkpoint import Checkpoint
from zol.collect.practice import Practice, PracticeConfig
from zol.models.prior_features import PriorFeaturesLearner
from zol.session import Agent
from zol.train.acting import FOLDER, begun, finished, plan_online, returns, told_apart
from zol.train.loop import TrainConfig, fit
from zol.train.planning import Plan
from zol.worlds import make
from zol.worlds.base import World


def pretrain_by_practice(
    model: str,
    world: World | str,
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
    """Pretrain a model of ``MODELS`` that practises in a world; the agent that it makes.

    ``settings`` are fields of ``TrainConfig``, ``PracticeConfig`` and of the model's configuration. An
    unfinished run in ``out`` is continued. ``episodes`` test episodes per task make a learning curve.
    """
    chosen = make(world) if isinstance(world, str) else world
    found = plan_online(model, chosen.name, preset=preset, device=device)
    training, practice, own = told_apart(found, settings, PracticeConfig, steps=steps, seed=seed)
    trained = execute_practice(
        found,
        chosen,
        out=out,
        training=training,
        settings=own,
        practice=practice,
        episodes=episodes,
        device=device,
        threads=threads,
        progress=progress,
    )
    return Agent(trained, path="this model" if out is None else str(out))


def execute_practice(
    plan: Plan,
    world: World,
    *,
    out: str | Path | None,
    training: TrainConfig,
    settings: Mapping[str, Any],
    practice: PracticeConfig,
    episodes: int = 0,
    device: str = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> Checkpoint:
    """Train as planned; what cannot work is said before the first step in the world."""
    config = plan.entry.config(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, **settings)
    facts: dict[str, Any] = {"preset": plan.preset, "world": world.name, "episodes": episodes}
    facts |= {"prompt": plan.entry.prompt, "practice": practice.model_dump(mode="json")}
    folder = None if out is None else Path(out) / FOLDER
    with begun(plan, config, training, out=out, device=device, threads=threads) as learner:
        assert isinstance(learner, PriorFeaturesLearner)
        with closing(Practice(learner, world, practice, folder=folder, seed=training.seed)) as feed:
            test = returns(
                world,
                learner,
                feed,
                episodes=episodes,
                seed=training.seed,
                prompt=plan.entry.prompt,
            )
            fit(
                learner,
                feed.begun,
                training,
                out,
                facts=facts,
                on_eval=test if episodes else None,
                progress=progress,
                feed=feed,
            )
            sample = feed.prompt_sample(training.seed)
    return finished(out, learner, facts, sample)
