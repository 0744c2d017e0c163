"""The second half of pretraining: a learned world from the same data, put into the checkpoint.

The last episodes of the data are kept from it, so that it can be judged by what it has not seen.
"""

from pathlib import Path

import torch
from pydantic import Field
from rich.console import Console
from rich.progress import Progress

from zol import checkpoint
from zol.checkpoint import DYNAMICS
from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.fields import Layout
from zol.imagination.dynamics import Dynamics, DynamicsConfig, DynamicsLearner
from zol.imagination.learned_world import LearnedWorld
from zol.train.loop import TrainConfig, fit
from zol.train.tensorboard import require_tensorboard
from zol.train.wandb import require_wandb
from zol.worlds import make
from zol.worlds.base import World

HELD_SHARE = 0.02  # of the episodes


class WorldConfig(TrainConfig):
    """How a learned world is trained."""

    steps: int = Field(default=20_000, ge=1)
    """gradient steps"""
    batch_size: int = Field(default=256, ge=2)
    """transitions per step"""
    anneal: float = Field(default=0.7, ge=0, le=1)
    """last share of the steps over which the learning rate falls to zero"""
    width: int = Field(default=256, ge=1)
    """of its networks"""
    members: int = Field(default=3, ge=2)
    """networks in the ensemble"""


def learn_world(
    dataset: Dataset,
    layout: Layout | None = None,
    config: WorldConfig = WorldConfig(),  # noqa: B008
    out: str | Path | None = None,
    *,
    progress: Progress | None = None,
) -> LearnedWorld:
    """Train a dynamics ensemble and judge it; with ``out``, a checkpoint folder, it is stored there.

    The run itself, resumable like any other, is in ``out/dynamics``. Without a layout nothing but the
    observation is predicted.
    """
    layout = layout if layout is not None else Layout.plain(dataset.obs_dim)
    held = max(1, round(HELD_SHARE * dataset.episodes))
    seen = dataset.first(dataset.episodes - held) if dataset.episodes > held else dataset
    settings = DynamicsConfig(
        obs_dim=dataset.obs_dim,
        action_dim=dataset.action_dim,
        hidden_fields=layout.hidden,
        hidden=config.width,
        members=config.members,
    )
    dynamics = Dynamics(settings, torch.Generator().manual_seed(config.seed))
    learner = DynamicsLearner(dynamics, seen, layout)
    folder = None if out is None else Path(out)
    loop = TrainConfig(**{name: getattr(config, name) for name in TrainConfig.model_fields})
    fit(learner, seen, loop, None if folder is None else folder / "dynamics", progress=progress)
    generator = torch.Generator().manual_seed(config.seed)
    learned = LearnedWorld.gather(dynamics, dataset, layout, generator, held_out=held)
    if folder is not None:
        learned.save(folder / DYNAMICS)
    return learned


def add_learned_world(dataset: Dataset, out: str | Path, config: WorldConfig) -> LearnedWorld:
    """Train a learned world on the data of a checkpoint's model, store it there and report its quality."""
    require_place(out)
    if config.tensorboard:
        require_tensorboard()
    if config.wandb:
        require_wandb()
    model = checkpoint.load(out).model
    if (dataset.obs_dim, dataset.action_dim) != (model.obs_dim, model.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, the model "
            f"in {out} has {model.obs_dim} and {model.action_dim}: was it trained on other data?"
        )
    name = dataset.provenance.get("world")
    world = make(str(name)) if name is not None else None
    learned = learn_world(dataset, world.layout if world is not None else None, config, out)
    report_learned_world(learned, world, out, terminal(soft_wrap=True, highlight=False))
    return learned


def report_learned_world(
    learned: LearnedWorld, world: World | None, out: str | Path | None, console: Console
) -> None:
    """Print how good a learned world is: its error of one step, and its rewards against real ones."""
    where = "" if out is None else f" in {out}"
    console.print(
        f"learned world{where}: one step misses {learned.one_step_error():.1%} of the variance of changes"
    )
    if world is None:
        return
    correlations = learned.reward_correlation(list(world.tasks.values()), world.layout).tolist()
    for task, correlation in zip(world.tasks, correlations, strict=True):
        console.print(
            f"  {task}: imagined and real rewards of held-out stretches correlate {correlation:.2f}"
        )
