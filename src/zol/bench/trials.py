"""Trials: trainings with tests on the way, one file of results each, done once and resumed where they ended.

A trial is trained by the loop of all models in a run folder of its own, with a test before the first step and
after every fifth of the steps. When it is finished, its raw returns, health numbers, CPU times and provenance
become one JSON file, and a trial that has its file is not run again. A process that is killed loses the steps
since the last saved state, a fiftieth of the trial.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from zol.bench.cpu_budget import Setup, measured
from zol.bench.store import now
from zol.common.config import Config
from zol.common.errors import DataError
from zol.common.files import write_bytes
from zol.common.outputs import require_place
from zol.common.progress import Ticker, progress_bar
from zol.common.reading import read_json
from zol.common.threads import one_torch_thread
from zol.train.loop import Diverged, TrainConfig, fit
from zol.train.run_folder import Line, RunFolder, read_metrics

POINTS = 5  # tests after the first step, the last one at the end
SAVES = 10  # saved states between two tests
MEASURED = 3.0  # CPU seconds for which a throw-away learner is timed, or less for small budgets
TESTS = 1.2  # how much longer a trial takes than its training, before the first one is done
BUDGET = "budget.json"  # in the run folder: the steps that were found to fit into the time


@dataclass(frozen=True)
class Trial:
    """One training of a benchmark."""

    name: str
    seed: int
    kind: str
    """what it learns from, in a word: ``offline``, ``practice``, ``oracle``"""
    settings: Mapping[str, Any]
    """what makes it this trial, as JSON values"""
    setup: Callable[[Path | None], AbstractContextManager[Setup]]
    """everything it needs; what it collects is kept in the folder, or nowhere"""
    seconds: float | None = None
    """CPU seconds of training"""
    steps: int | None = None
    """or a number of steps"""

    @property
    def file(self) -> str:
        """The name of its results."""
        return f"{self.name}-{self.seed}"


class Point(Config):
    """What was found at one moment of a training."""

    step: int
    cpu_seconds: float
    returns: dict[str, list[float]]  # task → one per episode
    health: dict[str, float]  # zol.train.health


class Outcome(Config):
    """Everything that is known of a finished trial."""

    name: str
    seed: int
    kind: str
    settings: dict[str, Any]
    conditions: dict[str, Any]  # what all trials of a comparison have in common
    steps: int
    batch_size: int
    updates_per_cpu_second: float | None  # of the throw-away learner, if there was one
    cpu_seconds: float
    random: dict[str, float]  # mean returns of uniformly random actions
    tests: list[Point]
    failed: str  # why it ended before its last step; empty if it did not
    sessions: list[dict[str, Any]]  # command, commit, hardware and versions of every process that trained
    finished: str


def run_trials(
    trials: Sequence[Trial], conditions: Mapping[str, Any], out: Path, runs: Path
) -> list[Outcome]:
    """Run what has no results in ``out`` yet, in folders below ``runs``; the outcomes of all trials."""
    require_place(out)
    require_place(runs, "--runs")
    done = {trial.file: _finished(trial, conditions, out) for trial in trials}
    todo = [trial for trial in trials if done[trial.file] is None]
    with progress_bar() as progress, one_torch_thread():
        bar, began = Ticker(progress, "trials", len(trials), done=len(trials) - len(todo)), time.monotonic()
        for k, trial in enumerate(todo):
            progress.console.print(_announced(trial, todo, k, time.monotonic() - began), highlight=False)
            outcome = run_trial(trial, conditions, runs / trial.file, progress)
            write_bytes(out / f"{trial.file}.json", (outcome.model_dump_json(indent=1) + "\n").encode())
            done[trial.file] = outcome
            bar.advance()
    return [outcome for outcome in done.values() if outcome is not None]


def _announced(trial: Trial, todo: Sequence[Trial], k: int, seconds: float) -> str:
    """What begins now, and how long everything takes if trials go on to take as long as so far."""
    known = [one.seconds for one in todo if one.seconds is not None]
    expected = seconds / k * (len(todo) - k) if k else TESTS * sum(known)
    left = f", about {expected / 60:.0f} minutes left" if expected else ""
    return f"trial {k + 1} of {len(todo)}: {trial.name}, seed {trial.seed}{left}"


def _finished(trial: Trial, conditions: Mapping[str, Any], out: Path) -> Outcome | None:
    """The results of a trial, if there are any; those of other settings are refused."""
    path = out / f"{trial.file}.json"
    if not path.exists():
        return None
    found = Outcome(**read_json(path))
    for before, asked in ((found.settings, trial.settings), (found.conditions, conditions)):
        for name in sorted({**before, **asked}):
            if before.get(name) != _as_json(asked.get(name)):
                raise DataError(
                    f"{path} was made with {name}={before.get(name)}, now {asked.get(name)} is asked for: "
                    "choose another --out, or remove that file"
                )
    return found


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def run_trial(trial: Trial, conditions: Mapping[str, Any], folder: Path, progress: Progress) -> Outcome:
    """Train and test as far as that was not done before."""
    steps, rate = _steps(trial, folder)
    with trial.setup(folder) as setup:
        every = steps // POINTS
        training = setup.training.updated(
            steps=steps, log_every=every, eval_every=every, save_every=max(1, every // SAVES)
        )
        lines, failed = _trained(setup, training, folder, progress)
    tests = [_point(line) for line in lines if "return/mean" in line]
    return Outcome(
        name=trial.name,
        seed=trial.seed,
        kind=trial.kind,
        settings=_as_json(trial.settings),
        conditions=_as_json(conditions),
        steps=steps,
        batch_size=training.batch_size,
        updates_per_cpu_second=rate,
        cpu_seconds=tests[-1].cpu_seconds,
        random=_below(lines[0], "random/"),
        tests=tests,
        failed=failed,
        sessions=RunFolder(folder).sessions(),
        finished=now(),
    )


def _steps(trial: Trial, folder: Path) -> tuple[int, float | None]:
    """How many steps the trial has, and the speed that says so; both are found once, and noted."""
    if trial.steps is not None:
        return POINTS * max(1, round(trial.steps / POINTS)), None
    assert trial.seconds is not None
    noted = folder / BUDGET
    if noted.exists():
        found = read_json(noted)
        return int(found["steps"]), float(found["rate"])
    with trial.setup(None) as thrown_away:
        speed = measured(thrown_away, min(MEASURED, trial.seconds / 20))
    steps = speed.steps(trial.seconds, POINTS)
    write_bytes(noted, json.dumps({"steps": steps, "rate": speed.rate, "before": speed.before}).encode())
    return steps, speed.rate


def _trained(
    setup: Setup, training: TrainConfig, folder: Path, progress: Progress
) -> tuple[Sequence[Line], str]:
    """The lines of a run, continued to its end, and why it ended earlier, if it did."""

    def test(step: int) -> dict[str, float]:
        returns = setup.test()
        line = {f"return/{task}": float(own.mean()) for task, own in returns.items()}
        line["return/mean"] = sum(line.values()) / max(1, len(line))
        for task, own in returns.items():
            line |= {f"episode/{task}/{k}": value for k, value in enumerate(own.tolist())}
        random = setup.random() if step == 0 else {}
        return {**line, **random, "cpu_seconds": setup.learner.spent}

    before = set(progress.task_ids)
    try:
        lines: Sequence[Line] = fit(
            setup.learner,
            setup.dataset,
            training,
            folder,
            facts=setup.facts,
            on_eval=test,
            progress=progress,
            feed=setup.feed,
        )
        return lines, ""
    except Diverged as error:
        return read_metrics(folder), str(error)
    finally:
        for bar in set(progress.task_ids) - before:  # one bar per trial would fill the screen
            progress.remove_task(bar)


def _point(line: Line) -> Point:
    returns: dict[str, list[float]] = {}
    for name, value in _below(line, "episode/").items():
        returns.setdefault(name.rpartition("/")[0], []).append(value)
    return Point(
        step=int(line["step"]),
        cpu_seconds=line["cpu_seconds"],
        returns=returns,
        health=_below(line, "health/"),
    )


def _below(line: Line, prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}


def mean_return(test: Point, tasks: Sequence[str]) -> float | None:
    """The mean over tasks of their mean returns; None if one of them was not tested."""
    if any(task not in test.returns for task in tasks):
        return None
    means = [sum(test.returns[task]) / len(test.returns[task]) for task in tasks]
    return sum(means) / len(means)
