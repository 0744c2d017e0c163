"""The page beside the scene: what is told about the bodies, and the groups of controls in their order.

Handlers do nothing but call the session, and say what went wrong.
"""

from functools import partial
from typing import Any

import numpy as np

from zol.common.errors import ZolError
from zol.play import take_home
from zol.play.controls import attempt, on
from zol.play.scene import PLAIN_COLOUR, SECOND_COLOUR, Scene
from zol.play.search import methods_for
from zol.play.session import ADAPTED, PLAIN, PlaySession, Second
from zol.play.tally import Moment
from zol.play.wanting import Goal, Sliders, Typing

SPEEDS = {"1×": 1.0, "½×": 0.5, "¼×": 0.25, "⅒×": 0.1}
SECONDS: tuple[Second, ...] = ("nothing", "adapted", "blend", "timeline")
NONE = "–"  # what a list shows that is still empty
TABLE = "margin: 0 0.75rem 0.25rem; font-size: 0.875rem; line-height: 1.55"


class Panel:
    """All controls of one visitor; ``client`` is a viser client handle."""

    def __init__(self, client: Any, session: PlaySession, scene: Scene) -> None:
        self._gui, self._session, self._scene = client.gui, session, scene
        self._revision = -1
        self._status()
        self._motion()
        tabs = self._gui.add_tab_group()
        for title, group in {"Sliders": Sliders, "Type": Typing, "Goal": Goal}.items():
            with tabs.add_tab(title):
                group(self._gui, session)
        with self._gui.add_folder("Adapt"):
            self._adapting()
        with self._gui.add_folder("Blend and timeline", expand_by_default=False):
            self._blending()
        with self._gui.add_folder("Take home", expand_by_default=False):
            self._taking_home()

    # What is told

    def _status(self) -> None:
        session, world = self._session, self._session.world.name
        self._gui.add_markdown(f"### {session.name}" + ("" if session.name == world else f" · {world}"))
        self._told = self._gui.add_html("")  # not Markdown, which the browser would have to parse each time
        nothing = np.zeros(1)
        self._curve = self._gui.add_uplot(
            (nothing, nothing, nothing),
            (
                {"label": "seconds"},
                {"label": "second", "stroke": _css(SECOND_COLOUR), "width": 2},
                {"label": "plain", "stroke": _css(PLAIN_COLOUR), "width": 2},
            ),
            title="reward, mean of 2 s",
            scales={"x": {"time": False}},
            legend={"show": False},
            height=150,
        )
        self._remarks = self._gui.add_markdown("")

    def tell(self, moment: Moment) -> None:
        """Bring the numbers up to date; called a few times a second."""
        session, search = self._session, self._session.search
        self._told.content = table(moment, session)
        notes = [f"**{session.message}**"] if session.message else []
        self._remarks.content = "\n\n".join([*notes, *(f"*{remark}*" for remark in session.remarks)])
        self._progress.visible = self._stop.visible = search is not None
        if search is not None:
            self._progress.value = 100 * search.share
            self._progress_note.content = f"{search.method}: {search.share:.0%}"
        past = list(session.tally.past)
        if len(past) > 1:
            seconds, first, second = np.array(past).T
            self._curve.data = (seconds, second if moment.shown == 2 else first, first)
        if session.revision != self._revision:
            self._revision = session.revision
            self._refresh_recipes()
            self._show_rewards()
            self._second.value = session.second

    def found(self) -> None:
        """A search has ended."""
        adapted = self._session.adapted
        self._progress_note.content = "" if adapted is None else f"found by {adapted.latent.method}"
        self._second.value = self._session.second
        self._refresh_recipes()

    def _show_rewards(self) -> None:
        states = self._session.prompter.states
        position = states.layout.find("position")
        if position is not None and position.size == 2:
            self._scene.paint(states["position"].numpy(), self._session.prompted.rewards.numpy())

    def _motion(self) -> None:
        session, scene = self._session, self._scene
        motion = self._gui.add_button_group("Motion", ("pause", "reset", "camera"))
        push = self._gui.add_button_group("Push", ("←", "→", "↑"), hint="or click a body")
        speed = self._gui.add_button_group("Speed", tuple(SPEEDS))

        @on(motion.on_click)
        def _(event: Any) -> None:
            if motion.value == "pause":
                session.paused = not session.paused
            elif motion.value == "reset":
                session.reset()
                scene.restart()
            else:
                scene.look()

        @on(push.on_click)
        def _(event: Any) -> None:
            up = (0.0, 1.0, 0.0) if scene.stage.seen_from_above else (0.0, 0.0, 1.5)
            direction = {"←": (-1.0, 0.0, 0.0), "→": (1.0, 0.0, 0.0), "↑": up}[push.value]
            session.push([scene.strength * part for part in direction])

        @on(speed.on_click)
        def _(event: Any) -> None:
            session.speed = SPEEDS[speed.value]

    # The second body

    def _adapting(self) -> None:
        session, methods = self._session, tuple(methods_for(self._session.agent))
        method = self._gui.add_dropdown("method", methods, initial_value=methods[0])
        about = "search for a better latent, in the background"
        start = self._gui.add_button("Adapt", color="orange", hint=about)
        self._progress = self._gui.add_progress_bar(0.0, visible=False, color="orange")
        self._stop = self._gui.add_button("Stop", visible=False)
        self._progress_note = self._gui.add_markdown("")
        self._second = self._gui.add_dropdown("second body", SECONDS, initial_value="nothing")

        @on(start.on_click)
        def _(event: Any) -> None:
            session.adapt(method.value)

        @on(self._stop.on_click)
        def _(event: Any) -> None:
            session.stop_search()
            self._progress_note.content = ""

        @on(self._second.on_update)
        def _(event: Any) -> None:
            if self._second.value != session.second:
                attempt(session, partial(session.show, self._second.value))
                self._second.value = session.second
                self._refresh_recipes()

    def _blending(self) -> None:
        session = self._session
        name = self._gui.add_text("name", "")
        keep = self._gui.add_button_group("keep", (PLAIN, ADAPTED))
        first = self._gui.add_dropdown("from", (NONE,), initial_value=NONE)
        last = self._gui.add_dropdown("to", (NONE,), initial_value=NONE)
        share = self._gui.add_slider("share", 0.0, 1.0, 0.01, 0.5)
        self._gui.add_divider()
        line = self._gui.add_text("timeline", "", hint="names and seconds, such as: walk 3, stand 2")
        glide = self._gui.add_slider("glide [s]", 0.0, 3.0, 0.1, 0.5)
        play = self._gui.add_button("Play the timeline")

        @on(keep.on_click)
        def _(event: Any) -> None:
            label = name.value or f"{session.text[:24]} {len(session.shelf) + 1}"
            attempt(session, partial(session.keep, label.replace(",", " "), keep.value))
            shelf = tuple(session.shelf) or (NONE,)
            first.options = last.options = shelf
            first.value, last.value = shelf[0], shelf[-1]
            line.value = ", ".join(f"{kept} 3" for kept in session.shelf)

        @on(share.on_update)
        def _(event: Any) -> None:
            if {first.value, last.value} <= session.shelf.keys():
                attempt(session, partial(session.blend, first.value, last.value, share.value))
                self._second.value = session.second

        @on(play.on_click)
        def _(event: Any) -> None:
            attempt(session, lambda: session.play_timeline(timeline_of(line.value), glide.value))
            self._second.value = session.second

    def _taking_home(self) -> None:
        session = self._session
        self._recipes = self._gui.add_markdown("")
        buttons = self._gui.add_button_group("write", ("latent", "ONNX", "film"))
        note = self._gui.add_markdown("")

        @on(buttons.on_click)
        def _(event: Any) -> None:
            note.content = "writing …"
            write = {"latent": take_home.save, "ONNX": take_home.export, "film": take_home.film}[
                buttons.value
            ]
            try:
                note.content = f"written: `{write(session)}`"
            except (ZolError, OSError) as error:
                note.content = f"**{error}**"

    def _refresh_recipes(self) -> None:
        python, command = take_home.python(self._session), take_home.command(self._session)
        self._recipes.content = f"```python\n{python}\n```\n\n```bash\n{command}\n```"


def timeline_of(text: str) -> list[tuple[str, float]]:
    """``walk 3, stand 2`` as names and seconds."""
    parts = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, seconds = piece.rpartition(" ")
        try:
            parts.append((name.strip(), float(seconds)))
        except ValueError:
            raise ZolError(f"'{piece}' is not a name and seconds, such as: walk 3") from None
    return parts


def table(moment: Moment, session: PlaySession) -> str:
    """Rewards and returns of the bodies with the estimates made beforehand, as HTML."""
    n = moment.shown
    asked = [PLAIN, ADAPTED if session.second == "adapted" else ""][:n]
    estimates = [session.estimates.answer(who) if who else None for who in asked]
    rows = [
        ["", *[PLAIN, str(session.second)][:n]],
        ["reward now", *(f"{value:.3f}" for value in moment.rewards[:n])],
        ["mean of 2 s", *(f"<b>{value:.3f}</b>" for value in moment.recent[:n])],
        ["return", *(f"{value:.1f}" for value in moment.returns[:n])],
        ["estimate", *("…" if found is None else str(found) for found in estimates)],
    ]
    code = "".join(f"{abs(int(value * 997)) % 16:x}" for value in session.plain.z[:6].tolist())
    facts = [f"step {moment.step} of {session.world.episode_length}", f"latent <code>{code}</code>"]
    if session.latency is not None:
        facts.append(f"obeyed after {1000 * session.latency:.0f} ms")
    if last := session.tally.last_returns[:n]:
        facts.append("last episode " + " and ".join(f"{value:.1f}" for value in last))
    if any(estimates):
        facts.append(f"estimate per step, offline, {session.estimates.told}")
    if session.paused:
        facts.insert(0, "paused")
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div style="{TABLE}"><table style="width: 100%">{body}</table>{" · ".join(facts)}</div>'


def _css(colour: tuple[int, int, int]) -> str:
    return f"rgb({colour[0]}, {colour[1]}, {colour[2]})"
