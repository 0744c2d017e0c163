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

import torch
from rich.progress import Progress

from zol import checkpoint
from zol.checkpoint import Checkpoint
from zol.collect.practice import Practice, PracticeConfig
from zol.common import parallel
from zol.common.device import choose_device, choose_threads
from zol.common.errors import DataError, unknown_name
from zol.common.outputs import require_place
from zol.data import Dataset
from zol.models.network import Network
from zol.models.prior_features import PriorFeaturesLearner
from zol.models.settings import FROM_DATA
from zol.session import Agent
from zol.train.loop import TrainConfig, fit, prompt_sample
from zol.train.online import plan_online
from zol.train.planning import Plan
from zol.train.returns import ReturnEvaluation
from zol.worlds import make
from zol.worlds.base import World

FOLDER = "practice"  # of the set, in that of the run


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
    own = {name for name in found.entry.config.model_fields if name not in FROM_DATA}
    known = own | set(TrainConfig.model_fields) | set(PracticeConfig.model_fields)
    for name in settings:
        if name not in known:
            raise DataError(unknown_name(f"setting of {model} or its training", name, known))
    loop = {name: value for name, value in settings.items() if name in TrainConfig.model_fields}
    loop |= {"seed": seed} | ({} if steps is None else {"steps": steps})
    acting = {name: value for name, value in settings.items() if name in PracticeConfig.model_fields}
    trained = execute_practice(
        found,
        chosen,
        out=out,
        training=found.training.updated(**loop),
        settings={**found.settings, **{name: v for name, v in settings.items() if name in own}},
        practice=practice_defaults(found).updated(**acting),
        episodes=episodes,
        device=device,
        threads=threads,
        progress=progress,
    )
    return Agent(trained, path="this model" if out is None else str(out))


def practice_defaults(plan: Plan) -> PracticeConfig:
    """How the preset practises."""
    return PracticeConfig(**{k: v for k, v in plan.others.items() if k in PracticeConfig.model_fields})


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
    entry = plan.entry
    config = entry.config(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, **settings)
    if out is not None:
        require_place(out)
    before = torch.get_num_threads()
    with parallel.processes(choose_device(device)) as place:
        if parallel.size() > 1:
            raise DataError(
                f"{entry.name} practises in one world while it learns, and {parallel.size()} processes were "
                "started: run it without torchrun"
            )
        torch.set_num_threads(choose_threads(training.batch_size * config.hidden**2, threads))
        try:
            network = entry.network(config, torch.Generator().manual_seed(training.seed)).to(place)
            learner = entry.learner(network, config, autocast=training.autocast, compiled=training.compiled)
            assert isinstance(learner, PriorFeaturesLearner)
            folder = None if out is None else Path(out) / FOLDER
            with closing(Practice(learner, world, practice, folder=folder, seed=training.seed)) as feed:
                facts: dict[str, Any] = {"preset": plan.preset, "world": world.name, "episodes": episodes}
                facts |= {"prompt": entry.prompt, "practice": practice.model_dump(mode="json")}
                test = (
                    _Test(world, network, feed, episodes, training.seed, entry.prompt) if episodes else None
                )
                fit(
                    learner,
                    feed.begun,
                    training,
                    out,
                    facts=facts,
                    on_eval=test,
                    progress=progress,
                    feed=feed,
                )
                sample = prompt_sample(feed.collected(), training.seed, steps=feed.prompt_steps())
        finally:
            torch.set_num_threads(before)
    if out is not None:
        return checkpoint.load(out)
    facts = checkpoint.description(network) | dict(learner.facts) | facts
    return Checkpoint(network.freeze(), facts, sample, None)


class _Test:
    """Returns of prompted latents, with prompts from what was visited so far."""

    def __init__(
        self, world: World, network: Network, feed: Practice, episodes: int, seed: int, prompt: str
    ) -> None:
        self.world, self.network, self.feed = world, network, feed
        self.episodes, self.seed, self.prompt = episodes, seed, prompt

    def __call__(self, step: int) -> dict[str, float]:
        prompt: Any = self.prompt
        data: Dataset = self.feed.collected()
        test = ReturnEvaluation(
            self.world,
            self.network,
            data,
            episodes=self.episodes,
            seed=self.seed,
            prompt=prompt,
            steps=self.feed.prompt_steps(),
        )
        return test(step) if test.evidence.tasks else {}
