"""A search that runs beside the page: with progress, and stopped as soon as nobody wants its answer."""

import ctypes
import threading
from contextlib import suppress
from typing import Any

from rich.progress import Progress, TaskID

from zol.adapt import METHODS
from zol.common.errors import ZolError
from zol.play.polite import step_back
from zol.session import AUTO, Agent, Skill
from zol.tasks import Task

PATIENCE = 1.0  # seconds for a thread to begin


class Stopped(ZolError):
    """The search was stopped because its answer is not wanted any more."""

    def __str__(self) -> str:
        return "stopped"


class _Watched(Progress):
    """A display that shows nothing: it remembers how far a search is, and is where a search is stopped."""

    def __init__(self) -> None:
        super().__init__(disable=True)
        self.stopped = False

    def update(self, task_id: TaskID, **changes: Any) -> None:
        if self.stopped:
            raise Stopped
        super().update(task_id, **changes)

    @property
    def share(self) -> float:
        """How much of what is known of is done, in [0, 1]."""
        tasks = [task for task in self.tasks if task.total]
        return sum(task.completed / (task.total or 1) for task in tasks) / len(tasks) if tasks else 0.0


class Search:
    """One run of a method for one task, in a thread of its own."""

    def __init__(self, agent: Agent, task: Task, method: str) -> None:
        """Starts at once."""
        self.task, self.method = task, method
        self.skill: Skill | None = None
        self.error = ""
        self._agent, self._progress, self._begun = agent, _Watched(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"zol play: {method}")
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether an answer may still come."""
        return self._thread.is_alive()

    @property
    def share(self) -> float:
        """How much of it is done, in [0, 1]."""
        return 1.0 if self.skill is not None else self._progress.share

    def stop(self) -> None:
        """End it: at its next report of progress, or sooner, between two operations of its thread.

        Searches report rarely, and nobody should wait for an answer that nobody wants: not the bodies, which
        share the processor with it, nor whoever closes the page.
        """
        self._progress.stopped = True
        self._begun.wait(PATIENCE)
        if self.running and self._thread.ident is not None:
            thread = ctypes.c_ulong(self._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        with suppress(Stopped):  # which may arrive at any moment
            self._begun.set()
            self._search()

    def _search(self) -> None:
        step_back()
        try:
            self.skill = self._agent.adapt(self.task, self.method, progress=self._progress)
            self.skill.single_latent()
        except ZolError as error:
            self.skill, self.error = None, str(error)


def methods_for(agent: Agent) -> list[str]:
    """Methods that a page offers: those that need nothing but the checkpoint and give one latent."""
    names = ["episodes", "rehearse", "zol", "zol-auto", "ridge", "weighted", "fb-centred"]
    fits = [name for name in names if agent.dynamics is not None or not METHODS[name].needs_learned_world]
    return [AUTO, *fits] if agent.method(AUTO) in fits else fits
