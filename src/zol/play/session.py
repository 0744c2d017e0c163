"""One visitor's play: a reward or a goal becomes a latent, latents move bodies, bodies earn rewards.

Nothing here knows of browsers or drawings. Two bodies live in one world of two environments: the first
follows the plain prompt of what is wanted, the second, if it is shown, an adapted latent, a blend, or a
timeline. Both start in the same state and are scored by the same reward. Every method may be called from any
thread.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from zol.common.errors import DataError, WorldError, ZolError
from zol.fields import States
from zol.models.base import Latent
from zol.play.body import body_of, posed
from zol.play.estimate import Estimator
from zol.play.prompting import Prompted, Prompter
from zol.play.remarks import remarks
from zol.play.search import Search
from zol.play.shelf import Shelf
from zol.play.tally import Moment, Pair, Tally
from zol.schedule import Schedule
from zol.session import Agent, Skill
from zol.tasks import Task
from zol.worlds.base import World

P = ParamSpec("P")
R = TypeVar("R")
Second = Literal["nothing", "adapted", "blend", "timeline"]
PATIENCE = 5.0  # seconds to wait for a thread that was told to end
PLAIN, ADAPTED = "plain", "adapted"


def locked(
    method: Callable[Concatenate["PlaySession", P], R],
) -> Callable[Concatenate["PlaySession", P], R]:
    """The same method, for one thread at a time."""

    @wraps(method)
    def guarded(session: "PlaySession", /, *arguments: P.args, **named: P.kwargs) -> R:
        with session.lock:
            return method(session, *arguments, **named)

    return guarded


class PlaySession:
    """The state behind one page."""

    def __init__(
        self,
        agent: Agent,
        world: World,
        prompter: Prompter,
        *,
        name: str | None = None,
        out: Path | None = None,
        seed: int = 0,
    ) -> None:
        """``world`` is this session's own; ``out`` is where latents, graphs and films go.

        ``name`` is how the user knows the model, for commands to copy.
        """
        self.name = agent.path if name is None else name
        self.agent, self.world, self.prompter = agent, world, prompter
        self.out = Path("zol-play") if out is None else out
        self.body = body_of(world)
        self.tally = Tally(self.body.timestep)
        self.lock = threading.RLock()
        self.stirred = threading.Event()  # set when what is wanted has changed, for whoever waits to step
        self.paused, self.speed = False, 1.0
        self.second: Second = "nothing"
        self.shelf = Shelf()
        self.blended: tuple[str, str, float] | None = None
        self.timeline: tuple[tuple[str, float], ...] = ()
        self.ghost: Tensor | None = None  # a frozen pose, [P]
        self.search: Search | None = None
        self.adapted: Skill | None = None
        self.text = ""  # the reward as it was asked for
        self.message = ""  # what went wrong last, in one sentence
        self.revision = 0  # counts changes of what moves the first body
        self.latency: float | None = None  # seconds from the last wish to the first step that obeyed it
        self.estimates = Estimator(agent)
        self._generator = torch.Generator().manual_seed(seed)
        self.changed_at = 0.0  # time.perf_counter() when something else was asked for last
        self._schedule: Schedule | None = None
        self._remarks: list[str] | None = None
        self.prompted: Prompted
        self.states: States
        self._begin()
        self.changed_at = 0.0  # nobody has changed anything yet
        self.reset()

    def _begin(self) -> None:
        """With walking if it is a task, or the first task that the sample can be scored by, or a goal."""
        for task in sorted(self.agent.tasks.values(), key=lambda task: task.name != "walk"):
            with suppress(ZolError):  # it may need the simulator's state, which not every sample has
                self.want(task, task.name)
                return
        self.go_to(self.prompter.states.obs[0])

    # What is wanted

    def ask(self, text: str) -> None:
        """A task's name or an expression, as typed. What was typed is never taken for a file to be run."""
        if not text.strip():
            raise DataError("an empty reward wants nothing: type an expression, such as a field's name")
        self.want(self.agent.resolve(text.strip())[0], text.strip())

    def want(self, task: Task, text: str) -> None:
        """Follow a task's plain prompt from the next step on; ``text`` is how the user knows it."""
        asked = time.perf_counter()
        self._follow(self.prompter.reward(task), text, asked)

    @locked
    def freeze(self, values: dict[str, float] | None = None) -> Tensor:
        """Keep the first body's pose (with some joints at other values) as a ghost, at rest."""
        begin = self.ghost if values and self.ghost is not None else self.world.physics[0]
        self.ghost = posed(self.body, begin, values or {})
        return self.ghost

    def go_there(self) -> None:
        """Ask for the frozen pose."""
        with self.lock:
            ghost = self.freeze() if self.ghost is None else self.ghost
        self.go_to(self.world.observe(ghost[None])[0])

    def go_to(self, obs: Tensor) -> None:
        """Ask for a state ``[D]``, by its own prompt."""
        asked = time.perf_counter()
        self._follow(self.prompter.goal(obs), "goal", asked)

    def _follow(self, found: Prompted, text: str, asked: float) -> None:
        with self.lock:
            self.prompted, self.text, self.message = found, text, ""
            self._remarks = [] if text == "goal" else None
            self.stop_search()
            self.adapted = None
            if self.second == "adapted":
                self.second = "nothing"
            self.revision += 1
            self.changed_at, self.latency = asked, None  # until a step obeys
            self.tally.restart()
        self.stirred.set()
        self.estimates.ask(PLAIN, found.latent, found.task)

    @property
    @locked
    def remarks(self) -> list[str]:
        """What the sample says about the reward, in words; found when it is read, for the body goes first."""
        if self._remarks is None:
            self._remarks = remarks(self.text, self.prompted.rewards, self.prompter.states)
        return self._remarks

    # What the second body does

    @locked
    def adapt(self, method: str) -> None:
        """Search for a better latent in the background; the second body follows it once it is found."""
        self.stop_search()
        self.search = Search(self.agent, self.prompted.task, method)

    @locked
    def stop_search(self) -> None:
        """Give up a search that is going on."""
        if self.search is not None:
            self.search.stop()
            self.search = None

    @locked
    def collect(self) -> bool:
        """Take over what a finished search has found; whether there was something new."""
        search = self.search
        if search is None or search.running:
            return False
        self.search = None
        if search.skill is None:
            self.message = search.error
            return True
        self.adapted = search.skill
        self.show("adapted")
        self.estimates.ask(ADAPTED, search.skill.latent, self.prompted.task)
        return True

    @locked
    def show(self, second: Second) -> None:
        """What the second body follows; it begins where the first one is."""
        if second == "adapted" and self.adapted is None:
            raise DataError("there is no adapted latent for this reward yet: press adapt first")
        if second == "blend" and self.blended is None:
            raise DataError("there is nothing to blend yet: keep two latents first")
        if second == "timeline" and self._schedule is None:
            raise DataError("the timeline is empty: keep latents first, and add them to it")
        self.second = second
        if second != "nothing":
            self._place(self.world.physics[:1].expand(2, -1))

    @locked
    def keep(self, name: str, which: str = PLAIN) -> None:
        """Put the plain or the adapted latent on the shelf."""
        latent = self.plain if which == PLAIN else None if self.adapted is None else self.adapted.latent
        if latent is None:
            raise DataError("there is no adapted latent to keep yet: press adapt first")
        self.shelf.keep(name, latent)

    @locked
    def blend(self, first: str, last: str, share: float) -> None:
        """Show the point at ``share`` of the way from one kept latent to another, on the sphere."""
        self.shelf.between(first, last, share)  # says what is missing before anything has changed
        begun = self.second == "blend"
        self.blended = (first, last, share)
        if not begun:
            self.show("blend")

    @locked
    def play_timeline(self, parts: Sequence[tuple[str, float]], glide_seconds: float = 0.0) -> None:
        """Let the second body follow kept latents one after the other, each for some seconds."""
        self._schedule = self.shelf.timeline(parts, glide_seconds, self.body.timestep)
        self.timeline = tuple(parts)
        self.show("timeline")

    # Motion

    @locked
    def reset(self) -> None:
        """Both bodies into one fresh start state."""
        self.world.reset(1, self._generator)
        self._place(self.world.physics.expand(2, -1))

    @locked
    def push(self, velocity: Sequence[float], which: int | None = None) -> None:
        """Push both bodies alike, or one of them, by a velocity (x, y, z) in m/s."""
        physics = self.world.physics.clone()
        rows = slice(None) if which is None else slice(which, which + 1)
        physics[rows] = self.body.pushed(physics[rows], torch.tensor(velocity, dtype=torch.float64))
        self.states = self.world.set_physics(physics)

    def _place(self, physics: Tensor) -> None:
        self.states = self.world.set_physics(physics.clone())
        self.tally.restart()

    @property
    def plain(self) -> Latent:
        """The latent of the plain prompt."""
        return self.prompted.latent

    @property
    def latents(self) -> Tensor:
        """What the two bodies act with now, ``[2, d]``."""
        first = second = self.plain.z
        if self.second == "adapted" and self.adapted is not None:
            second = self.adapted.latent.z
        elif self.second == "blend" and self.blended is not None:
            second = self.shelf.between(*self.blended)
        elif self.second == "timeline" and self._schedule is not None:
            second = self._schedule(self.tally.steps)
        return torch.stack([first, second])

    @locked
    @torch.no_grad()
    def step(self) -> Moment:
        """One action of both bodies."""
        z = self.latents
        action = self.agent.model.act(self.states.obs.to(z.dtype), z)
        try:
            self.states = self.world.step(action)
        except WorldError as error:  # a push was too much for the simulator
            self.message = str(error)
            self.reset()
        rewards = self._rewards()
        if self.latency is None and self.changed_at:
            self.latency = time.perf_counter() - self.changed_at
        self.tally.add(rewards)
        moment = self._moment(rewards)
        over = self.states.terminated is not None and bool(self.states.terminated.any())
        if over or moment.step >= self.world.episode_length:
            self.reset()
            self.tally.restart(moment.returns)
        return moment

    def _rewards(self) -> Pair:
        try:
            first, second = self.prompted.task(self.states).tolist()
        except ZolError as error:
            self.message = str(error)
            return 0.0, 0.0
        return float(first), float(second)

    def _moment(self, rewards: Pair) -> Moment:
        tally, shown = self.tally, 1 if self.second == "nothing" else 2
        physics = self.world.physics
        return Moment(tally.steps, physics, rewards, tally.recent, tally.returns, shown, self.revision)

    @property
    def skill(self) -> Skill:
        """What the page shows: an adapted or blended latent if there is one, or the plain one."""
        with self.lock:
            if self.second == "adapted" and self.adapted is not None:
                return self.adapted
            if self.second == "blend" and self.blended is not None:
                first, last, share = self.blended
                name = f"{first} {1 - share:.0%} and {last} {share:.0%}"
                between = self.shelf.between(first, last, share)
                latent = replace(self.plain, z=between, task=name, method="blend")
                return Skill(self.agent.model, latent, self.prompted.task)
            return Skill(self.agent.model, self.plain, self.prompted.task)

    @property
    def source(self) -> Latent:
        """What leads to the shown latent: the adapted one if it is shown, the plain one otherwise."""
        return self.adapted.latent if self.second == "adapted" and self.adapted is not None else self.plain

    def close(self) -> None:
        """Stop what runs in the background, and wait: an interpreter must not end under its threads."""
        search = self.search
        self.stop_search()
        if search is not None:
            search.wait(PATIENCE)
        self.estimates.close()
