"""What a training run says about itself: its speed, a line beside the bar, a line per evaluation."""

import time
from collections.abc import Mapping, Sequence


class Clock:
    """Steps per second since the last restart."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, step: int) -> None:
        """Count from here: time that was spent on something else does not count."""
        self._step, self._since = step, time.perf_counter()

    def speed(self, step: int) -> float:
        """Steps per second."""
        return (step - self._step) / max(time.perf_counter() - self._since, 1e-9)


def format_progress(history: Sequence[Mapping[str, float]], metrics: Mapping[str, str]) -> str:
    """Beside the bar of a training run: speed, its two most telling metrics, the last mean return.

    ``metrics`` are those worth watching, title → name, the most telling ones first.
    """
    now = history[-1]
    shown = [f"{now['steps_per_second']:.3g} steps/s"] if "steps_per_second" in now else []
    shown += [f"{title} {now[name]:.3g}" for title, name in list(metrics.items())[:2] if name in now]
    returns = [line["return/mean"] for line in history if "return/mean" in line]
    return " ".join([*shown, *(f"return {r:.3g}" for r in returns[-1:])])


def format_evaluation(line: Mapping[str, float]) -> str:
    """Format one evaluation as a log line; it stays above the progress bar."""
    if "return/mean" not in line:
        return f"step {line['step']:,}: tested"
    random = f", random actions {line['random/mean']:.4g}" if "random/mean" in line else ""
    return f"step {line['step']:,}: mean return {line['return/mean']:.4g}{random}"
