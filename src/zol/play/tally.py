"""What the bodies earn in an episode: now, on average lately, altogether; and what there is to see of it."""

from collections import deque
from dataclasses import dataclass

from torch import Tensor

RECENT = 2.0  # seconds that the shown mean reward goes back
POINTS = 10.0  # of the curve of rewards, per second
PAST = 400  # points of the curve that are kept
Pair = tuple[float, float]  # of the first body and of the second


@dataclass(frozen=True)
class Moment:
    """What there is to see after a step."""

    step: int  # of the episode
    physics: Tensor  # [2, P]
    rewards: Pair
    recent: Pair  # mean rewards of the last seconds
    returns: Pair
    shown: int  # 1 or 2 bodies
    revision: int = 0  # of the wish that this step obeyed


class Tally:
    """Counts from a reset, or from a new wish, on."""

    def __init__(self, timestep: float) -> None:
        """``timestep`` is the control period in seconds."""
        self._timestep = timestep
        self._every = max(1, round(1 / (POINTS * timestep)))  # steps between two points of the curve
        self._recent: deque[Pair] = deque(maxlen=max(1, round(RECENT / timestep)))
        self.past: deque[tuple[float, float, float]] = deque(maxlen=PAST)  # seconds and both means
        self.restart()

    def restart(self, last_returns: tuple[float, ...] = ()) -> None:
        """Nothing is earned yet; ``last_returns`` are those of the episode before, if it came to its end."""
        self.steps, self.returns = 0, (0.0, 0.0)
        self.last_returns = last_returns
        self._recent.clear()
        self.past.clear()

    def add(self, rewards: Pair) -> None:
        """Both bodies have taken a step."""
        self.steps += 1
        self.returns = (self.returns[0] + rewards[0], self.returns[1] + rewards[1])
        self._recent.append(rewards)
        if self.steps % self._every == 0:
            self.past.append((self.steps * self._timestep, *self.recent))

    @property
    def recent(self) -> Pair:
        """Mean rewards of the last seconds."""
        first, second = (sum(values) / len(self._recent) for values in zip(*self._recent, strict=True))
        return first, second
