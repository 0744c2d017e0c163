"""The learning curve in returns: what prompted latents earn on every task of a world during training.

Every evaluation prompts the current model with the same sample of the data and starts from the same states,
so that two points of a curve differ by the model alone. The first point also says what uniformly random
actions earn, the line that a curve has to leave behind.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from zol.adapt import prompted
from zol.data import Dataset
from zol.data.prompting import prompt_sample
from zol.evidence import Evidence
from zol.models.base import Learner
from zol.models.network import Network
from zol.prompt import RewardPrompt
from zol.rollout import evaluate, random_returns
from zol.worlds.base import World


class ReturnEvaluation:
    """Called with a step, gives ``return/{task}`` and ``return/mean``; at step 0 ``random/…`` too."""

    def __init__(
        self,
        world: World,
        learner: Learner,
        data: Dataset | Mapping[str, Tensor],
        *,
        episodes: int,
        seed: int = 0,
        prompt: RewardPrompt = "correlation",
    ) -> None:
        """``data`` are a set, or a sample of it as ``prompt_sample`` draws one."""
        sample = prompt_sample(data, seed) if isinstance(data, Dataset) else data
        labelled = Evidence.from_sample(sample, world.layout, world.tasks)
        # unrewarded: tasks without any reward in the sample, for which no latent can be asked
        self.evidence, self.unrewarded = labelled.rewarded_tasks()
        self.world, self.learner, self.prompt = world, learner, prompt
        self.episodes, self.seed = episodes, seed

    def __call__(self, step: int) -> dict[str, float]:
        """The mean return of every task at this moment."""
        returns = torch.stack(list(self.returns().values()))
        found = _named("return", self.evidence.tasks, returns.mean(1).tolist())
        return found | (self.random() if step == 0 else {})

    def returns(self) -> dict[str, Tensor]:
        """The returns of every task's episodes at this moment, task → ``[E]``."""
        # Simulators give observations on the CPU; a copy keeps the policy beside them.
        checked = self.learner.checked
        assert isinstance(checked, Network)
        model = deepcopy(checked).cpu()
        generator = torch.Generator().manual_seed(self.seed)
        latents = prompted(model, self.evidence, self.prompt).latents()
        returns = evaluate(self.world, model, latents, episodes=self.episodes, generator=generator).returns
        return dict(zip(self.evidence.tasks, returns, strict=True))

    def random(self) -> dict[str, float]:
        """What uniformly random actions earn from the same start states."""
        tasks = [self.world.tasks[name] for name in self.evidence.tasks]
        generator = torch.Generator().manual_seed(self.seed)
        returns = random_returns(self.world, tasks, episodes=self.episodes, generator=generator)
        return _named("random", self.evidence.tasks, returns.mean(1).tolist())


def _named(kind: str, tasks: tuple[str, ...], values: list[float]) -> dict[str, float]:
    each = {f"{kind}/{task}": value for task, value in zip(tasks, values, strict=True)}
    return each | {f"{kind}/mean": sum(values) / len(values)}
