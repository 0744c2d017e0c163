"""The second half of pretraining: a learned world from the same data, put into the checkpoint.

The last episodes of the data are kept from it, so that it can be judged by what it has not seen.
"""

from pathlib import Path

import torch
from pydantic import Field
from rich.progress import Progress

from zol.checkpoint import DYNAMICS
from zol.data import Dataset
from zol.fields import Layout
from zol.imagination.dynamics import Dynamics, DynamicsConfig, DynamicsLearner
from zol.imagination.learned_world import LearnedWorld
from zol.train import TrainConfig, fit

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
    layout: Layout,
    config: WorldConfig,
    out: str | Path | None = None,
    *,
    progress: Progress | None = None,
) -> LearnedWorld:
    """Train a dynamics ensemble and judge it; with ``out``, a checkpoint folder, it is stored there.

    The run itself, resumable like any other, is in ``out/dynamics``.
    """
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
