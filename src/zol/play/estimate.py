"""Offline estimates beside the running returns: computed in the background, the latest question first."""

import threading
from dataclasses import dataclass

from zol.common.errors import ZolError
from zol.models.base import Latent
from zol.play.polite import step_back
from zol.session import Agent, Skill
from zol.tasks import Task
from zol.value.accuracy import told

PATIENCE = 5.0  # seconds to wait for an answer that is being computed when the page closes
QUIET = 0.4  # seconds without a new question before one is answered: sliders ask many times a second


@dataclass(frozen=True)
class Estimate:
    """What a latent is expected to earn per step, and where the truth is likely, before anything is tried."""

    mean: float
    likely: tuple[float, float] | None  # measured on other models; None where nothing was
    estimator: str

    def __str__(self) -> str:
        ends = "" if self.likely is None else " ({:.2f} to {:.2f})".format(*self.likely)
        return f"{self.mean:.2f}{ends}"


class Estimator:
    """Answers the latest question about each body."""

    def __init__(self, agent: Agent) -> None:
        """Nothing runs before something is asked."""
        self._agent = agent
        self.name = "imagination" if agent.dynamics is not None else "ratio"
        self.told = told(self.name, agent.judged_domain)
        self._changed = threading.Condition()
        self._questions: dict[str, tuple[Latent, Task]] = {}
        self._answers: dict[str, Estimate | None] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, who: str, latent: Latent, task: Task) -> None:
        """Forget the last answer about ``who`` and find the next."""
        with self._changed:
            self._questions[who] = (latent, task)
            self._answers[who] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="zol play: estimates")
                self._thread.start()
            self._changed.notify()

    def answer(self, who: str) -> Estimate | None:
        """The answer to the latest question about ``who``, if it is there."""
        with self._changed:
            return self._answers.get(who)

    def close(self) -> None:
        """Answer nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        step_back()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._questions))
                while not self._closed and self._changed.wait(QUIET):
                    pass  # somebody is still turning a slider
                if self._closed:
                    return
                who, (latent, task) = self._questions.popitem()
            try:
                found = self._agent.value(Skill(self._agent.model, latent, task), self.name)
            except ZolError:
                continue
            ends = None if found.likely is None else (float(found.likely[0, 0]), float(found.likely[1, 0]))
            with self._changed:
                if who not in self._questions:
                    self._answers[who] = Estimate(float(found.mean[0]), ends, self.name)
