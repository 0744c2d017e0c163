"""What skills earned in the world, and how to read it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zol import report


@dataclass(frozen=True)
class Evaluation:
    """Returns of skills in the world, beside those of random actions from the same start states."""

    world: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    returns: NDArray[np.float64]  # [skills, episodes]
    random: NDArray[np.float64]  # [skills, episodes]
    steps: int  # of an episode

    @property
    def intervals(self) -> list[report.Interval]:
        """Mean return of every skill, with its 95 % bootstrap interval over episodes."""
        return [report.bootstrap(earned[None, None]) for earned in self.returns]

    @property
    def mean(self) -> float:
        """Mean return over all skills and episodes."""
        return float(self.returns.mean())

    def __str__(self) -> str:
        episodes = self.returns.shape[1]
        lines = [
            f"{task} by {method}: return {interval}, random actions {report.number(chance)}"
            for task, method, interval, chance in zip(
                self.tasks, self.methods, self.intervals, self.random.mean(1).tolist(), strict=True
            )
        ]
        about = (
            f"{episodes} episodes of {self.steps} steps in {self.world}; mean [95 % interval over episodes]"
        )
        return "\n".join([*lines, about])

    __repr__ = __str__
