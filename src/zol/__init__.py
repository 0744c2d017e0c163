"""Zero-shot off-policy learning: the best behaviour a pretrained model already knows, for any task.

These names are the public interface; everything else may change. They are imported when first used, so
``import zol`` is quick and pulls in nothing heavy.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zol import adapt, measure, prompt, testing, worlds
    from zol.adapt import Adapted, ZOLConfig
    from zol.checkpoint import Checkpoint, save
    from zol.data import Dataset
    from zol.evidence import Evidence
    from zol.fields import States
    from zol.models.base import Latent, Model
    from zol.models.base import Measure as Measure
    from zol.models.fb import FB, FBConfig
    from zol.models.fb_learner import FBLearner
    from zol.models.wrap import wrap
    from zol.report import Scores as Scores
    from zol.rollout import evaluate
    from zol.session import Agent, Skill, load
    from zol.tasks import Task
    from zol.train import TrainConfig, pretrain

__version__ = metadata.version("zol")

# name: where it lives
_HOMES = {
    "Dataset": "zol.data",
    "Task": "zol.tasks",
    "States": "zol.fields",
    "FB": "zol.models.fb",
    "FBConfig": "zol.models.fb",
    "FBLearner": "zol.models.fb_learner",
    "Model": "zol.models.base",
    "Measure": "zol.models.base",
    "Latent": "zol.models.base",
    "TrainConfig": "zol.train",
    "pretrain": "zol.train",
    "Evidence": "zol.evidence",
    "Adapted": "zol.adapt",
    "ZOLConfig": "zol.adapt",
    "evaluate": "zol.rollout",
    "Scores": "zol.report",
    "Checkpoint": "zol.checkpoint",
    "load": "zol.session",
    "Agent": "zol.session",
    "Skill": "zol.session",
    "save": "zol.checkpoint",
    "wrap": "zol.models.wrap",
}
_MODULES = ("adapt", "measure", "prompt", "testing", "worlds")

__all__ = [  # noqa: RUF022  (in the order in which a user meets them)
    "load", "Agent", "Skill",
    "Dataset", "Task", "States",
    "FB", "FBConfig", "FBLearner", "TrainConfig", "pretrain",
    "Model", "Latent", "Evidence", "Adapted", "ZOLConfig", "adapt",
    "evaluate", "Checkpoint", "save", "wrap",
    "measure", "prompt", "testing", "worlds",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"zol.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'zol' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
