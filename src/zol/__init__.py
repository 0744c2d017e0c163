"""Zero-shot off-policy learning: the best behaviour a pretrained model already knows, for any task.

    agent = zol.load("walker")                                  # a model of the zoo, a folder, or hf://…
    skill = agent.adapt(lambda s: s["torso_height"] > 1.2)      # a reward, a task, or a task's name
    print(agent.evaluate(skill, episodes=20))                   # what it earns, with an interval

These names are the public interface; everything else may change. They are imported when first used, so
``import zol`` is quick and pulls in nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zol.common.version import VERSION

if TYPE_CHECKING:
    from zol import adapt, measure, models, prompt, testing, train, value, worlds
    from zol.adapt import Adapted
    from zol.checkpoint import Checkpoint, save
    from zol.data import Dataset
    from zol.evidence import Evidence
    from zol.fields import States
    from zol.models.base import Latent, Measure, Model
    from zol.models.network import Network
    from zol.models.wrap import wrap
    from zol.rollout import evaluate
    from zol.session import Agent, Skill, load
    from zol.tasks import Task
    from zol.train import pretrain


__version__ = VERSION

# name: where it lives
_HOMES = {
    "load": "zol.session",
    "Agent": "zol.session",
    "Skill": "zol.session",
    "pretrain": "zol.train",
    "Dataset": "zol.data",
    "Task": "zol.tasks",
    "States": "zol.fields",
    "Model": "zol.models.base",
    "Network": "zol.models.network",
    "Measure": "zol.models.base",
    "Latent": "zol.models.base",
    "wrap": "zol.models.wrap",
    "Checkpoint": "zol.checkpoint",
    "save": "zol.checkpoint",
    "Evidence": "zol.evidence",
    "Adapted": "zol.adapt",
    "evaluate": "zol.rollout",
}
_MODULES = ("adapt", "measure", "models", "prompt", "testing", "train", "value", "worlds")
# Names of earlier versions, in the modules where they live; still found here.
_ELSEWHERE = {
    "FBConfig": "zol.models.fb",
    "FBLearner": "zol.models.fb",
    "TrainConfig": "zol.train",
    "ZOLConfig": "zol.adapt",
    "Scores": "zol.report",
}

__all__ = [  # noqa: RUF022  (in the order in which a user meets them)
    "load", "Agent", "Skill", "pretrain",
    "Dataset", "Task", "States",
    "Model", "Network", "Measure", "Latent", "wrap", "Checkpoint", "save",
    "Evidence", "Adapted", "evaluate",
    "adapt", "measure", "models", "prompt", "testing", "train", "value", "worlds",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"zol.{name}")
    home = _HOMES.get(name) or _ELSEWHERE.get(name)
    if home is None:
        raise AttributeError(f"module 'zol' has no attribute '{name}'")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
