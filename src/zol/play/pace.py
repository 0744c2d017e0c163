"""When the next step of a body is due: real time on the whole, and at once when something new is wanted."""

import time
from dataclasses import dataclass

LATE = 0.25  # seconds behind real time after which it is given up


@dataclass
class Pace:
    """A clock of steps, in seconds of ``time.perf_counter()``.

    Somebody who turns a slider should not wait for the end of a control period, which is 50 ms in some
    worlds. So a step may be taken early, by one period at most, and the clock goes on as if it had not been:
    the steps after it are not due any sooner, and a body never runs more than one step ahead of real time.
    """

    due: float  # when the next step is due
    period: float = 0.0  # between steps

    def stepped(self, period: float, now: float | None = None) -> None:
        """A step was taken; the next is due one period after the time at which this one was."""
        self.period, self.due = period, self.due + period
        current = time.perf_counter() if now is None else now
        if self.due - current < -LATE:
            self.due = current

    def early(self, now: float) -> float:
        """Seconds until a step may be taken early: none, unless the last one was."""
        return self.due - self.period - now
