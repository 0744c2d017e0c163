"""From data to a checkpoint: preset, network, learner, learning curve and learned world in one call.

    agent = pretrain("data/walker", "fb", out="runs/walker", steps=8_000)

Settings come, in rising order of precedence, from the model's configuration, from a preset
(zol.train.presets), from the checkpoint that training starts from, if any, and from the caller. A plan
(zol.train.planning) says what they are, :func:`execute` trains; the command line uses both, and
:func:`pretrain` is their sum.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol import checkpoint
from zol.checkpoint import Checkpoint
from zol.collect.mixed_practice import MixedPractice, MixedPracticeConfig
from zol.common import parallel
from zol.common.config import Config
from zol.common.device import choose_device, choose_threads
from zol.common.errors import CheckpointError, DataError, ZolError
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.data.prompting import prompt_sample
from zol.models.foreign.hub import ORIGIN
from zol.models.learner import NetworkLearner
from zol.models.network import Network
from zol.models.settings import settings_of
from zol.session import Agent
from zol.train.acting import FOLDER, require_one_process, returns, told_apart
from zol.train.learned_world import WorldConfig, learn_world, report_learned_world
from zol.train.loop import Hook, TrainConfig, fit, require_outputs
from zol.train.planning import Plan, plan
from zol.train.returns import ReturnEvaluation
from zol.train.run_folder import RunFolder
from zol.worlds import make
from zol.worlds.base import World

Acting = tuple[World, MixedPracticeConfig]
ONLINE = {
    "demonstrations": "zol.train.pretrain_online(name, world, demonstrations)",
    "practice": "zol.train.pretrain_by_practice(name, world)",
}
EPISODES = 10  # per task and evaluation on the command line, where the data name a world


def pretrain(
    data: Dataset | str | Path,
    model: str = "fb",
    *,
    out: str | Path | None = None,
    steps: int | None = None,
    preset: str = "auto",
    seed: int = 0,
    episodes: int = 0,
    dynamics_steps: int | None = None,
    start_from: Agent | Checkpoint | str | Path | None = None,
    practise: World | str | None = None,
    device: str = "auto",
    threads: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Agent:
    """Pretrain a model of the registry ``MODELS`` on reward-free data; the agent that it makes.

    ``settings`` are fields of ``TrainConfig`` and of the model's configuration; what is not given comes from
    the preset. ``out`` is the folder of the run, where an interrupted one is continued. ``episodes`` test
    episodes per task make a learning curve (0: none). A learned world, in which ``agent.adapt`` plays
    latents, is trained beside the model: ``dynamics_steps`` (0: none), by default as many per step as in the
    preset. ``start_from`` is a checkpoint whose network is trained further: a folder, a zoo name, ``hf://…``.
    In the world ``practise`` the model's own policies act while it trains, and what they visit joins the
    data: it is then not learned offline, and ``settings`` may be fields of ``MixedPracticeConfig``, too.
    """
    found = plan(
        model,
        data,
        preset=preset,
        device=device,
        start_from=start_from,
        learning_rate=settings.get("learning_rate"),
    )
    world = make(practise) if isinstance(practise, str) else practise
    extra: type[Any] = Config if world is None else MixedPracticeConfig
    training, practice, own = told_apart(found, settings, extra, steps=steps, seed=seed)
    if dynamics_steps is None:
        dynamics_steps = _steps_of_the_learned_world(found, training.steps, out)
    trained = execute(
        found,
        out=out,
        training=training,
        settings=own,
        acting=None if world is None else (world, practice),
        episodes=episodes,
        dynamics_steps=dynamics_steps,
        device=device,
        threads=threads,
        progress=progress,
    )
    return Agent(trained, path="this model" if out is None else str(out))


def _steps_of_the_learned_world(plan: Plan, steps: int, out: str | Path | None) -> int:
    """In proportion to the model's, as in the preset; as before where the run continues an earlier one."""
    before = None if out is None else RunFolder(Path(out) / "dynamics").settings()
    return round(plan.dynamics_steps * steps / plan.training.steps) if before is None else before["steps"]


def execute(
    plan: Plan,
    *,
    out: str | Path | None,
    training: TrainConfig,
    settings: Mapping[str, Any],
    acting: Acting | None = None,
    episodes: int = 0,
    dynamics_steps: int = 0,
    device: str = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> Checkpoint:
    """Train as planned, with these settings instead of the suggested ones.

    With ``acting`` the model's policies act in a world while it trains.
    """
    if plan.entry.online:
        raise DataError(
            f"{plan.entry.name} learns in a world that it acts in, not from a set of data: "
            + ONLINE[plan.entry.online]
        )
    if plan.dataset is None:
        raise DataError("there is nothing to train on: give data")
    require_outputs(out, training)
    before = torch.get_num_threads()
    with parallel.processes(choose_device(device)) as place:
        if acting is not None:
            require_one_process(plan.entry.name)
        width = int(settings.get("hidden", plan.entry.config.model_fields["hidden"].default))
        torch.set_num_threads(choose_threads(training.batch_size // parallel.size() * width**2, threads))
        try:
            model, facts, sample = _train(
                plan, plan.dataset, out, training, settings, acting, episodes, place, progress
            )
            learned = None
            if dynamics_steps:
                config = WorldConfig(steps=dynamics_steps, seed=training.seed)
                world = None if plan.world_name is None else plan.world
                layout = None if world is None else world.layout
                learned = learn_world(plan.dataset, layout, config, out, progress=progress)
                report_learned_world(learned, world, out, _console(progress))
        finally:
            torch.set_num_threads(before)
        if out is not None and parallel.is_main():
            return checkpoint.load(out)
    facts = checkpoint.description(model) | facts
    return Checkpoint(model.freeze(), facts, sample, learned)


def _train(
    plan: Plan,
    dataset: Dataset,
    out: str | Path | None,
    training: TrainConfig,
    settings: Mapping[str, Any],
    acting: Acting | None,
    episodes: int,
    device: torch.device,
    progress: Progress | None,
) -> tuple[Network, dict[str, Any], Mapping[str, Tensor]]:
    """The trained network, what is known about it, and a sample of states to prompt it with."""
    console, entry = _console(progress), plan.entry
    world = _tested_world(plan, dataset) if episodes else None
    config = entry.config(obs_dim=dataset.obs_dim, action_dim=dataset.action_dim, **settings)
    if plan.start is None:
        model = entry.network(config, torch.Generator().manual_seed(training.seed)).to(device)
    else:
        model = _continued(plan.start, config).to(device)
    learner = entry.learner(model, config, autocast=training.autocast, compiled=training.compiled)
    facts: dict[str, Any] = {"preset": plan.preset, "transitions": len(dataset), "episodes": episodes}
    facts |= {"prompt": entry.prompt_of(model)}
    facts |= {name: dataset.provenance[name] for name in ("world", "dataset") if name in dataset.provenance}
    if plan.start is not None:
        learner.start = str(plan.start.facts["weights"])
        facts["start"] = f"{plan.start.facts['model']} {learner.start}"
        facts |= {name: plan.start.facts[name] for name in ORIGIN if name in plan.start.facts}
    threads = torch.get_num_threads()
    where = f"{device} with {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else str(device)
    console.print(
        f"preset {plan.preset}: {sum(p.numel() for p in model.parameters()):,} weights, {len(dataset):,} "
        f"transitions, batch {training.batch_size}, {training.steps:,} steps on {where}"
    )
    if acting is not None:
        facts["practice"] = {"world": acting[0].name, **acting[1].model_dump(mode="json")}
    seed = training.seed
    with _practice(learner, dataset, acting, out, seed) as feed:
        test: Hook | None = None
        if world is not None and feed is not None:
            test = returns(world, learner, feed, episodes=episodes, seed=seed, prompt=entry.prompt_of(model))
        elif world is not None:
            prompt: Any = entry.prompt_of(model)
            fixed = ReturnEvaluation(world, learner, dataset, episodes=episodes, seed=seed, prompt=prompt)
            if fixed.unrewarded:
                console.print(
                    f"not tested, because the sample holds no reward: {', '.join(fixed.unrewarded)}"
                )
            test = fixed if fixed.evidence.tasks else None
        fit(learner, dataset, training, out, facts=facts, on_eval=test, progress=progress, feed=feed)
        sample = prompt_sample(dataset, seed) if feed is None else feed.prompt_sample(seed)
    if out is not None:
        console.print(f"the checkpoint is in {out}")
    checked = learner.checked
    assert isinstance(checked, Network)
    return checked, dict(learner.facts) | facts, sample


@contextmanager
def _practice(
    learner: NetworkLearner,
    dataset: Dataset,
    acting: Acting | None,
    out: str | Path | None,
    seed: int,
) -> Iterator[MixedPractice | None]:
    """Practice beside the data, if there is to be any."""
    if acting is None:
        yield None
        return
    folder = None if out is None else Path(out) / FOLDER
    with closing(MixedPractice(learner, acting[0], dataset, acting[1], folder=folder, seed=seed)) as feed:
        yield feed


def _console(progress: Progress | None) -> Console:
    if progress is not None:
        return progress.console
    return terminal(quiet=not parallel.is_main(), soft_wrap=True, highlight=False)


def _tested_world(plan: Plan, dataset: Dataset) -> World:
    """The world to test in, known before any time is spent."""
    try:
        world = plan.world
    except ZolError as error:
        raise DataError(f"{error}; --episodes 0 trains without testing") from error
    if (world.layout.obs_dim, world.action_dim) != (dataset.obs_dim, dataset.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, their "
            f"world '{dataset.provenance['world']}' has {world.layout.obs_dim} and {world.action_dim}: "
            "--episodes 0 trains without testing"
        )
    return world


def _continued(start: Checkpoint, config: Any) -> Network:
    """A copy of the checkpoint's network, to be trained with these settings."""
    for name, value in settings_of(start.model.config).items():
        if getattr(config, name, value) != value:
            raise CheckpointError(
                f"{name}={getattr(config, name)} is asked for, but the network to start from has {value}: "
                f"leave {name} out, or train a new network without a checkpoint to start from"
            )
    model = Network(start.model.config.updated(discount=config.discount))
    model.layout = start.model.layout
    model.load_state_dict(start.model.state_dict())
    return model
