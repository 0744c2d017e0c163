"""What skills earned in the world, and how to read it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zol import report


@dataclass(frozen=True)
class Evaluation:
    """Returns of skills in the world, beside those of random actions from the same start states.

    In an environment of gymnasium, ``returns`` and ``random`` count the environment's own reward, ``wanted``
    and ``wanted_random`` the reward that each skill was asked for.
    """

    world: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    returns: NDArray[np.float64]  # [skills, episodes]
    random: NDArray[np.float64]  # [skills, episodes]
    steps: int  # of an episode
    wanted: NDArray[np.float64] | None = None  # [skills, episodes]; NaN for a skill without a reward
    wanted_random: NDArray[np.float64] | None = None  # [skills, episodes]

    @property
    def intervals(self) -> list[report.Interval]:
        """Mean return of every skill, with its 95 % bootstrap interval over episodes."""
        return [report.bootstrap(earned[None, None]) for earned in self.returns]

    @property
    def mean(self) -> float:
        """Mean return over all skills and episodes."""
        return float(self.returns.mean())

    @property
    def per_step(self) -> NDArray[np.float64]:
        """Mean reward per step of every skill ``[skills]``: the scale of offline estimates.

        What the skill was asked for counts, where that is not what the environment rewards.
        """
        earned = self.returns if self.wanted is None else self.wanted
        return np.asarray(earned.mean(1) / self.steps)

    def __str__(self) -> str:
        episodes = self.returns.shape[1]
        lines = [
            f"{task} by {method}: return {interval}, random actions {report.number(chance)}" + self._wanted(k)
            for k, (task, method, interval, chance) in enumerate(
                zip(self.tasks, self.methods, self.intervals, self.random.mean(1).tolist(), strict=True)
            )
        ]
        whose = "" if self.wanted is None else ", whose own reward counts"
        about = (
            f"{episodes} episodes of {self.steps} steps in {self.world}{whose}; "
            "mean [95 % interval over episodes]"
        )
        return "\n".join([*lines, about])

    def _wanted(self, skill: int) -> str:
        """What it earned of the reward that it was asked for, where that is another one."""
        if self.wanted is None or self.wanted_random is None or np.isnan(self.wanted[skill]).any():
            return ""
        earned = report.bootstrap(self.wanted[skill][None, None])
        chance = report.number(float(self.wanted_random[skill].mean()))
        return f"; of the reward asked for {earned}, random actions {chance}"

    __repr__ = __str__
