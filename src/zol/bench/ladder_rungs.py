"""Learners of the ladder's rungs: practice for a pool that holds the world's own tasks, and TD3 by practice.

Both see rewards of test tasks. They are for diagnosis, and no command trains models with them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from zol.bench.cpu_budget import Metered, Setup
from zol.bench.single_task import SingleTask
from zol.bench.trial_setups import practising
from zol.collect.practice import PracticeConfig
from zol.collect.rnd import RNDConfig
from zol.data import BatchSpec
from zol.fields import Layout, States
from zol.models.prior_features import PriorFeaturesLearner
from zol.models.reward_prior import evaluate
from zol.models.reward_space import RewardSpace
from zol.tasks import Task
from zol.train.acting import plan_online, told_apart
from zol.worlds.base import World

MODEL = "prior_features"


class TaskSpace(RewardSpace):
    """A space of rewards whose pool begins with tasks of the world; some rewards of the prior may follow.

    Features are those of the prior as ever, so that rungs differ by the latents that are trained alone.
    """

    def __init__(
        self, like: RewardSpace, count: int, prior: int, rewards: Callable[[Tensor], Tensor]
    ) -> None:
        """``rewards`` gives those of ``count`` tasks, ``[S, D] → [S, count]``; ``prior`` more are drawn."""
        sizes = (like.obs.shape[1], like.values.shape[1], like.latents.shape[1])
        super().__init__(*sizes, count + prior, like.whitening, like.posture, like.posture_share)
        self.tasks, self.prior, self.rewards = count, prior, rewards

    def earned(self) -> Tensor:
        """What every reward of the pool pays in every state of the sample, ``[S, K]``."""
        drawn = evaluate(self.pool[self.tasks : int(self.count)], self.values)
        return torch.cat([self.rewards(self.obs).to(drawn), drawn], dim=-1)

    @torch.no_grad()
    def grow(self, count: int, generator: torch.Generator) -> None:
        """All tasks from the beginning, and up to ``count`` rewards of the prior."""
        self.count.clamp_(min=self.tasks)
        super().grow(self.tasks + min(count, self.prior), generator)


def rewards_of(tasks: Sequence[Task], layout: Layout, obs: Tensor) -> Tensor:
    """The rewards of tasks in states ``[S, D]``, ``[S, T]``."""
    states = States(obs.double(), layout)
    return torch.stack([task(states) for task in tasks], dim=-1)


def practise_for(tasks: Sequence[Task], prior: int, layout: Layout, learner: PriorFeaturesLearner) -> None:
    """Let a learner practise for these tasks and so many rewards of the prior, and nothing else."""
    learner.space = TaskSpace(learner.space, len(tasks), prior, partial(rewards_of, tasks, layout))
    learner.add_helper("space", learner.space)


class PractisedTask(SingleTask):
    """TD3 of one task, with what zol.collect.practice asks of a learner: a pool of one reward, its task."""

    def __init__(self, world: World, task: Task, config: RNDConfig, seed: int) -> None:
        super().__init__(world, task, config, seed)
        self.config = SimpleNamespace(quantities=())
        self.space = SimpleNamespace(count=torch.tensor(1), latents=torch.zeros(1, 1))

    @property
    def batches(self) -> BatchSpec:
        """Stretches of one step."""
        return BatchSpec(path=1)

    def use_layout(self, layout: Layout) -> None:
        """There are no quantities to find."""

    def prepare(self, obs: Tensor, generator: torch.Generator) -> None:
        """There is no space of rewards to build."""

    def grow(self, generator: torch.Generator) -> None:
        """The pool stays as it is."""


@contextmanager
def td3_by_practice(
    task: Task, settings: Mapping[str, Any], world: World, seed: int, episodes: int, folder: Path | None
) -> Iterator[Setup]:
    """TD3 of one task in the loop of ``prior_features``, with its rounds, noise, widths and rates."""
    plan = plan_online(MODEL, world.name, device="cpu")
    training, practice, own = told_apart(plan, settings, PracticeConfig, steps=None, seed=seed)
    config = RNDConfig(
        batch_size=training.batch_size,
        **{name: own[name] for name in ("hidden", "learning_rate", "discount", "target_rate")},
    )
    learner = PractisedTask(world, task, config, seed)
    with practising(learner, world, practice, training, folder) as (feed, spent):
        yield Setup(
            Metered(learner, spent),
            feed.begun,
            training,
            partial(learner.returns, episodes, seed),
            partial(learner.random, episodes, seed),
            feed,
            practice.updates,
        )
