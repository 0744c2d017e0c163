"""The page: every browser that opens it gets a session, a scene and controls of its own."""

import contextlib
import io
import threading
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from zol.common.errors import CheckpointError
from zol.common.extras import require
from zol.play.body import body_of
from zol.play.gate import Gate, is_loopback, require_token
from zol.play.pace import Pace
from zol.play.prompting import Prompter
from zol.play.session import PlaySession
from zol.session import Agent
from zol.tasks import Task
from zol.worlds import make
from zol.worlds.base import World

PICTURES = 30.0  # per second, at most
TOLD = 5.0  # times per second that numbers are brought up to date
LAST = 5.0  # seconds to wait for a visitor's last step
BRAND = (47, 111, 222)


class PlayServer:
    """Serves one agent to any number of visitors."""

    def __init__(
        self,
        agent: Agent,
        name: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 8017,
        token: str | None = None,
        reward: tuple[Task, str] | None = None,
        out: Path | None = None,
        seed: int = 0,
    ) -> None:
        """``reward`` is a task to begin with, and how the user wrote it; the first of the world if none."""
        require_token(host, token)
        viser = require("viser", "play", "zol play")
        require("mjviser", "play", "zol play")
        # A browser may leave between two messages; that is no news.
        warnings.filterwarnings("ignore", "Queued a .* on a closed connection", UserWarning)
        if agent.world is None:
            raise CheckpointError(
                f"{agent.path} does not name its world, so there is no body to play with: add --world WORLD"
            )
        body_of(agent.world)
        import_module("zol.play.panel"), import_module("zol.play.stage")  # not while somebody waits
        self.agent, self.name, self.out, self.seed, self.reward = agent, name or agent.path, out, seed, reward
        self.prompter = Prompter(agent)
        self.visitors: dict[int, Visitor] = {}
        self._lock = threading.Lock()
        guarded = not is_loopback(host)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._viser = viser.ViserServer(
                "127.0.0.1" if guarded else host, 0 if guarded else port, label="zol play", verbose=False
            )
        self._viser.gui.configure_theme(
            control_width="large", show_logo=False, show_share_button=False, brand_color=BRAND
        )
        self._viser.gui.main_panel.dock_right()
        # Reflections of an environment and shadows are most of the work of a browser that draws in software.
        self._viser.scene.configure_default_lights(cast_shadow=False)
        self._viser.scene.configure_environment_map(None)
        self._viser.scene.add_light_hemisphere("/light", intensity=2.2)
        self._gate = Gate(host, port, str(token), self._viser.get_port()) if guarded else None
        self._host, self._token = host, token
        self._viser.on_client_connect(self._enter)
        self._viser.on_client_disconnect(self._leave)

    @property
    def address(self) -> str:
        """What to type into a browser."""
        if self._gate is None:
            return f"http://{self._host}:{self._viser.get_port()}"
        return f"http://{self._host}:{self._gate.port}/?token={self._token}"

    def close(self) -> None:
        """Send everybody home."""
        for visitor in list(self.visitors.values()):
            visitor.close()
            visitor.join(LAST)
        if self._gate is not None:
            self._gate.close()
        with contextlib.redirect_stdout(io.StringIO()):
            self._viser.stop()

    def _enter(self, client: Any) -> None:
        visitor = Visitor(client, self)
        with self._lock:
            self.visitors[client.client_id] = visitor
        visitor.start()

    def _leave(self, client: Any) -> None:
        with self._lock:
            visitor = self.visitors.pop(client.client_id, None)
        if visitor is not None:
            visitor.close()

    def own_world(self) -> World:
        """A world of a visitor's own, on one core."""
        assert self.agent.world is not None
        world = make(self.agent.world.name)
        if world.threads is not None:
            world.threads = 1
        return world


class Visitor(threading.Thread):
    """One browser: its session runs in this thread, in real time, until it leaves."""

    def __init__(self, client: Any, server: PlayServer) -> None:
        """Makes the session and everything that is shown of it."""
        from zol.play.panel import Panel
        from zol.play.scene import Scene
        from zol.play.stage import stage_of

        super().__init__(daemon=True, name=f"zol play: visitor {client.client_id}")
        world = server.own_world()
        self.session = PlaySession(
            server.agent, world, server.prompter, name=server.name, out=server.out, seed=server.seed
        )
        if server.reward is not None:
            self.session.want(*server.reward)
        self.scene = Scene(client, stage_of(world), self.session.push)
        self.panel = Panel(client, self.session, self.scene)
        self._gone = threading.Event()

    def close(self) -> None:
        """The browser has left."""
        self._gone.set()
        self.session.stirred.set()
        self.session.close()

    def run(self) -> None:
        """Step, draw and tell, as fast as real time and no faster."""
        torch.set_num_threads(1)
        session, pace, drawn, told = self.session, Pace(time.perf_counter()), 0.0, 0.0
        moment, seen = session.step(), -1
        while not self._gone.is_set():
            if not session.paused:
                moment = session.step()
            if session.collect():
                self.panel.found()
            now = time.perf_counter()
            if now - drawn >= 1 / PICTURES or moment.revision != seen:  # a wish is not kept waiting
                self.scene.draw(moment, session.ghost)
                drawn, seen = now, moment.revision
            if now - told >= 1 / TOLD:
                self.panel.tell(moment)
                self.scene.name("plain", session.second)
                told = now
            pace.stepped(session.body.timestep / session.speed)
            self._wait(pace)

    def _wait(self, pace: Pace) -> None:
        """Until the next step is due, or somebody wants something else and it may be taken early."""
        session = self.session
        while not self._gone.is_set():
            changed, now = session.stirred.is_set(), time.perf_counter()
            wait = pace.early(now) if changed else pace.due - now
            if wait <= 0:
                break
            if changed:
                self._gone.wait(wait)
            else:
                session.stirred.wait(wait)
        session.stirred.clear()
