"""How long a run trained until its tests reached a score: what a user waits for.

Minutes are those of the loop, practice in a world included and tests left out: every line of metrics has the
speed of the steps since the line before, so

    minutes(step) = Σ_lines (step_i − step_{i−1}) / speed_i / 60

A score is the mean return over some tasks. It is *reached* at the first test from which on it is never below
the level again, because a behaviour that comes and goes between two checkpoints is none to rely on; the first
test that passed it is told beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from zol.common.errors import DataError, unknown_name
from zol.train.run_folder import Line


@dataclass(frozen=True)
class Curve:
    """Tests of a run: minutes of training and mean returns over the chosen tasks."""

    minutes: tuple[float, ...]
    steps: tuple[int, ...]
    scores: tuple[float, ...]

    def passed(self, level: float) -> float | None:
        """Minutes at the first test with at least this score; None if there is none."""
        return next((m for m, s in zip(self.minutes, self.scores, strict=True) if s >= level), None)

    def reached(self, level: float) -> float | None:
        """Minutes from which on no test is below this score; None if the last one is."""
        found = None
        for minute, score in zip(self.minutes, self.scores, strict=True):
            if score < level:
                found = None
            elif found is None:
                found = minute
        return found


def tested_tasks(lines: Sequence[Line]) -> list[str]:
    """The tasks whose returns these metrics hold."""
    names = [name.removeprefix("return/") for line in lines for name in line if name.startswith("return/")]
    return [name for name in dict.fromkeys(names) if name != "mean"]


def curve(lines: Sequence[Line], tasks: Sequence[str] = (), where: str = "this run") -> Curve:
    """The curve of a run from its metrics, over these tasks or over all of them."""
    known = tested_tasks(lines)
    if not known:
        raise DataError(f"{where} holds no returns: it was trained with --episodes 0, or has not begun")
    for task in tasks:
        if task not in known:
            raise DataError(unknown_name(f"task tested in {where}", task, known))
    minutes, last = 0.0, 0.0
    tests: list[tuple[float, int, float]] = []
    for line in lines:
        if "steps_per_second" in line and line["step"] > last:
            minutes += (line["step"] - last) / max(line["steps_per_second"], 1e-9) / 60
            last = line["step"]
        returns = [line[f"return/{task}"] for task in tasks or known if f"return/{task}" in line]
        if len(returns) == len(tasks or known):
            tests.append((minutes, int(line["step"]), sum(returns) / len(returns)))
    return Curve(*(tuple(part) for part in zip(*tests, strict=True)))
