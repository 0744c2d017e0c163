"""One visitor's play: a reward or a goal becomes a latent, latents move bodies, bodies earn rewards.

Nothing here knows of browsers or drawings. Two bodies live in one world of two environments: the first
follows the plain prompt of what is wanted, the second, if it is shown, an adapted latent, a blend, or a
timeline. Both start in the same state and are scored by the same reward. Every method may be called from any
thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from zol.common.errors import DataError, WorldError, ZolError
from zol.common.outputs import file_stem
from zol.fields import States
from zol.models.base import Latent
from zol.play import recipes
from zol.play.body import body_of, posed
from zol.play.estimate import Estimator
from zol.play.prompting import Prompted, Prompter
from zol.play.remarks import remarks
from zol.play.search import Search
from zol.play.timeline import repeated
from zol.schedule import Schedule, slerp
from zol.session import Agent, Skill
from zol.tasks import Task
from zol.worlds.base import World

P = ParamSpec("P")
R = TypeVar("R")
Second = Literal["nothing", "adapted", "blend", "timeline"]
RECENT = 2.0  # seconds that the shown mean reward goes back
PATIENCE = 5.0  # seconds to wait for a thread that was told to end
PAST = 400  # points of the curve of rewards
PLAIN, ADAPTED = "plain", "adapted"


@dataclass(frozen=True)
class Moment:
    """What there is to see after a step."""

    step: int  # of the episode
    physics: Tensor  # [2, P]
    rewards: tuple[float, float]
    recent: tuple[float, float]  # mean rewards of the last seconds
    returns: tuple[float, float]
    shown: int  # 1 or 2 bodies


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
        self.lock = threading.RLock()
        self.stirred = threading.Event()  # set when what is wanted has changed, for whoever waits to step
        self.paused, self.speed = False, 1.0
        self.second: Second = "nothing"
        self.shelf: dict[str, Latent] = {}
        self.blended: tuple[str, str, float] | None = None
        self.timeline: tuple[tuple[str, float], ...] = ()
        self.ghost: Tensor | None = None  # a frozen pose, [P]
        self.search: Search | None = None
        self.adapted: Skill | None = None
        self.text = ""  # the reward as it was asked for
        self.remarks: list[str] = []
        self.message = ""  # what went wrong last, in one sentence
        self.revision = 0  # counts changes of what moves the first body
        self.latency: float | None = None  # seconds from the last wish to the first step that obeyed it
        self.estimates = Estimator(agent)
        self._generator = torch.Generator().manual_seed(seed)
        self.changed_at = 0.0  # time.perf_counter() when something else was asked for last
        self._schedule: Schedule | None = None
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
            self.prompted, self.text, self.remarks, self.message = found, text, [], ""
            self.stop_search()
            self.adapted = None
            if self.second == "adapted":
                self.second = "nothing"
            self.revision += 1
            self.changed_at, self.latency = asked, None  # until a step obeys
            self._restart_tally()
            revision = self.revision
        self.stirred.set()
        self.estimates.ask(PLAIN, self.plain, found.task)
        said = remarks(text, found.rewards, self.prompter.states) if text != "goal" else []
        with self.lock:
            if self.revision == revision:  # the body has obeyed meanwhile, and nobody has changed his mind
                self.remarks = said

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
        if not name.strip():
            raise DataError("a latent on the shelf needs a name")
        self.shelf[name.strip()] = latent

    @locked
    def blend(self, first: str, last: str, share: float) -> None:
        """Show the point at ``share`` of the way from one kept latent to another, on the sphere."""
        self.between(first, last, share)
        begun = self.second == "blend"
        self.blended = (first, last, share)
        if not begun:
            self.show("blend")

    def between(self, first: str, last: str, share: float) -> Tensor:
        """The latent at ``share`` of the way between two kept ones."""
        a, b = self._kept(first).z, self._kept(last).z
        return slerp(a, b, torch.tensor(float(share), dtype=a.dtype))

    @locked
    def play_timeline(self, parts: Sequence[tuple[str, float]], glide_seconds: float = 0.0) -> None:
        """Let the second body follow kept latents one after the other, each for some seconds."""
        if not parts:
            raise DataError("the timeline is empty: keep latents first, and add them to it")
        latents = [self._kept(name).z for name, _ in parts]
        lengths = [max(1, round(seconds / self.body.timestep)) for _, seconds in parts]
        self.timeline = tuple(parts)
        self._schedule = repeated(latents, lengths, round(glide_seconds / self.body.timestep))
        self.show("timeline")

    def _kept(self, name: str) -> Latent:
        if name not in self.shelf:
            raise DataError(f"no latent called '{name}' is on the shelf: keep it first")
        return self.shelf[name]

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
        self._restart_tally()

    def _restart_tally(self) -> None:
        self.steps, self._totals = 0, [0.0, 0.0]
        size = max(1, round(RECENT / self.body.timestep))
        self._recent: deque[tuple[float, float]] = deque(maxlen=size)
        self.past: deque[tuple[float, float, float]] = deque(maxlen=PAST)
        self.last_returns: tuple[float, ...] = ()  # of the episode before this one

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
            second = self.between(*self.blended)
        elif self.second == "timeline" and self._schedule is not None:
            second = self._schedule(self.steps)
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
        self.steps += 1
        self._totals = [total + reward for total, reward in zip(self._totals, rewards, strict=True)]
        self._recent.append(rewards)
        moment = self._moment(rewards)
        if self.steps % max(1, round(0.1 / self.body.timestep)) == 0:
            self.past.append((self.steps * self.body.timestep, *moment.recent))
        over = self.states.terminated is not None and bool(self.states.terminated.any())
        if over or self.steps >= self.world.episode_length:
            self.reset()
            self.last_returns = moment.returns
        return moment

    def _rewards(self) -> tuple[float, float]:
        try:
            first, second = self.prompted.task(self.states).tolist()
        except ZolError as error:
            self.message = str(error)
            return 0.0, 0.0
        return float(first), float(second)

    def _moment(self, rewards: tuple[float, float]) -> Moment:
        first, second = (sum(values) / len(self._recent) for values in zip(*self._recent, strict=True))
        shown = 1 if self.second == "nothing" else 2
        returns = (self._totals[0], self._totals[1])
        return Moment(self.steps, self.world.physics, rewards, (first, second), returns, shown)

    # What to take home

    @property
    def skill(self) -> Skill:
        """What the page shows: an adapted or blended latent if there is one, or the plain one."""
        with self.lock:
            if self.second == "adapted" and self.adapted is not None:
                return self.adapted
            if self.second == "blend" and self.blended is not None:
                first, last, share = self.blended
                name = f"{first} {1 - share:.0%} and {last} {share:.0%}"
                latent = replace(self.plain, z=self.between(*self.blended), task=name, method="blend")
                return Skill(self.agent.model, latent, self.prompted.task)
            return Skill(self.agent.model, self.plain, self.prompted.task)

    def save(self) -> Path:
        """Write the shown latent; ``agent.skill(path)`` reads it."""
        skill = self.skill
        path = self.out / f"{file_stem(skill.latent.task)[:80]} by {skill.latent.method}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        skill.save(path)
        return path

    def export(self) -> Path:
        """Write the policy as ONNX with the shown latent."""
        return self.agent.export(self.out / "onnx", self.skill, rate=1 / self.body.timestep).folder

    def film(self, seconds: float = 10.0) -> Path:
        """Write a film of the shown latent, from a fresh start state."""
        skill = self.skill
        short = replace(skill, latent=replace(skill.latent, task=skill.latent.task[:80]))
        return self.agent.film(short, self.out, steps=round(seconds / self.body.timestep))[0]

    @property
    def python(self) -> str:
        """Python that finds the shown latent again."""
        return recipes.as_python(self.name, self.text, self._source, self.prompted.task.goal)

    @property
    def command(self) -> str:
        """The command that finds the shown latent again."""
        return recipes.as_command(self.name, self.text, self._source, self.text in self.agent.tasks)

    @property
    def _source(self) -> Latent:
        return self.adapted.latent if self.second == "adapted" and self.adapted is not None else self.plain

    def close(self) -> None:
        """Stop what runs in the background, and wait: an interpreter must not end under its threads."""
        search = self.search
        self.stop_search()
        if search is not None:
            search.wait(PATIENCE)
        self.estimates.close()
