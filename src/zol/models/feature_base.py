"""What every loss of features is: networks that only it needs, the batches it looks at, and a value."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from zol.common import parallel
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec
from zol.models.learner import NetworkLearner, View


@dataclass(frozen=True)
class FeatureTerms:
    """What one batch gives: the loss, if features are learned, φ(s') and numbers worth watching."""

    next_phi: Tensor  # [N, d]
    loss: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)


class FeatureLoss(ABC):
    """A way to learn features: the networks that only it needs, and its loss."""

    learned: ClassVar[bool] = True

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        """``generator`` draws the initial weights of further networks."""
        self.learner, self.config, self.generator = learner, learner.config, generator
        if self.learned:
            learner.add_optimiser(
                "feature_optimiser", [learner.model.backward_map], self.config.backward_learning_rate
            )

    @property
    def batches(self) -> BatchSpec:
        """What it looks at."""
        return BatchSpec()

    @abstractmethod
    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """The loss of a batch; ``here`` and ``there`` are views of s and s'."""

    def phi(self, view: View, network: nn.Module | None = None) -> Tensor:
        """The features of a batch of observations, by the model's network or by another of its shape."""
        return self.learner.run(network or self.learner.model.backward_map, self.seen(view))

    def seen(self, view: View) -> Tensor:
        """What features read of a batch of observations, ``[N, width]``."""
        backward = self.learner.model.config.backward
        assert backward is not None
        return view(backward.reads)

    def later(self, batch: Batch) -> Tensor:
        """The future states of a batch."""
        if batch.future_obs is None:
            raise DataError(
                f"{type(self).__name__} looks at later states of an episode, and this batch has none: draw "
                "it by the learner's own BatchSpec, from data with episodes"
            )
        return batch.future_obs

    def mixed_goals(self, batch: Batch, goals: Tensor, generator: torch.Generator) -> Tensor:
        """The goals ``[N, D]``, a share ``random_goals`` of them replaced by states of other rows."""
        random, rows = self.random_goals(batch, generator)
        return torch.where(random.unsqueeze(-1), parallel.gather(batch.next_obs)[rows], goals)

    def random_goals(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Which goals are random ``[N]``, and the row, among those of all processes, that gives its s'."""
        n, device = parallel.size() * len(batch), generator.device
        rows = parallel.share(torch.randperm(n, generator=generator, device=device)).to(batch.obs.device)
        chance = parallel.share(torch.rand(n, 1, generator=generator, device=device)).to(batch.obs.device)
        return (chance < self.config.random_goals).squeeze(-1), rows
