r"""Training for a given CPU time: a meter on a learner, and how many updates fit into the time.

Learning rates fall towards the last step, so the number of steps has to be known before the first one. A
throw-away learner is therefore timed for a while, and

    steps = (budget − CPU seconds before the first update) · updates per CPU second.

CPU time is that of the process (all of its threads), so that waiting for a busy machine costs nothing.
Drawing a batch, acting in a world and updating count; tests, health checks and saving do not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from zol.data import Batch, BatchSpec, Dataset
from zol.data.sampling import Sampler
from zol.models.base import Learner, Model
from zol.train.loop import Feed, TrainConfig

SPENT = "cpu_seconds"  # name of the meter's count in the training state


class Metered:
    """A learner whose training is timed; the count is part of its state, and resumes with everything else.

    The loop scales the learning rates, draws a batch and updates: the clock runs from the first to the last.
    """

    def __init__(self, learner: Learner, spent: float = 0.0) -> None:
        """``spent`` are CPU seconds that it cost already, such as first steps in a world."""
        self.learner, self.spent = learner, spent
        self._since = time.process_time()

    def scale_learning_rates(self, scale: float) -> None:
        """The clock starts; then as the learner does it."""
        self._since = time.process_time()
        self.learner.scale_learning_rates(scale)

    def note_progress(self, share: float) -> None:
        """As the learner does it."""
        self.learner.note_progress(share)

    @property
    def turning_points(self) -> Sequence[float]:
        """The learner's."""
        return self.learner.turning_points

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """As the learner does it; the clock stops."""
        metrics = self.learner.update(batch, generator)
        self.spent += time.process_time() - self._since
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        """That of the learner, and the count."""
        return self.learner.state_dict() | {SPENT: torch.tensor(self.spent, dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.spent = float(state[SPENT])
        self.learner.load_state_dict({name: value for name, value in state.items() if name != SPENT})

    @property
    def model(self) -> Any:
        """The learner's."""
        return self.learner.model

    @property
    def checked(self) -> Model | None:
        """The learner's."""
        return self.learner.checked

    @property
    def settings(self) -> Mapping[str, Any]:
        """The learner's."""
        return self.learner.settings

    @property
    def facts(self) -> Mapping[str, Any]:
        """The learner's."""
        return self.learner.facts

    @property
    def shown(self) -> Mapping[str, str]:
        """The learner's."""
        return self.learner.shown

    @property
    def batches(self) -> BatchSpec:
        """The learner's."""
        return self.learner.batches


@dataclass(frozen=True)
class Setup:
    """Everything that one training needs, made anew for every process."""

    learner: Metered
    dataset: Dataset  # what there is before the first step
    training: TrainConfig  # its number of steps is decided later
    test: Callable[[], Mapping[str, Tensor]]  # returns of every task at this moment, task → [E]
    random: Callable[[], Mapping[str, float]]  # mean returns of random actions, ``random/{task}``
    feed: Feed | None = None
    cycle: int = 0  # updates between two rounds of practice: their cost includes that of one round
    facts: Mapping[str, Any] | None = None  # noted in run and checkpoint


@dataclass(frozen=True)
class Speed:
    """What a throw-away learner cost."""

    before: float  # CPU seconds before and in the first update, beyond those of another update
    rate: float  # updates per CPU second

    def steps(self, seconds: float, multiple: int) -> int:
        """Updates that fit into so many CPU seconds, a multiple of ``multiple``, and at least that."""
        return multiple * max(1, round((seconds - self.before) * self.rate / multiple))


def measured(setup: Setup, seconds: float) -> Speed:
    """Train for ``seconds`` of CPU time, or for a whole round of practice, and throw the learner away."""
    learner, config = setup.learner, setup.training
    draw = (setup.feed or Sampler(setup.dataset, torch.device("cpu"), learner.batches)).draw
    generator = torch.Generator().manual_seed(config.seed)

    def update() -> None:
        learner.scale_learning_rates(1.0)
        learner.update(draw(learner.batches, config.batch_size, generator), generator)

    update()  # practice builds its space of rewards in it, and memory is found for everything
    before, updates = learner.spent, 0
    while updates < max(setup.cycle, 5) or (not setup.cycle and learner.spent - before < seconds):
        update()
        updates += 1
    rate = updates / max(learner.spent - before, 1e-9)
    return Speed(max(0.0, before - 1 / rate), rate)
