"""The controls: how a visitor says what is wanted, and what is told about it.

Each folder is a method; its callbacks do nothing but call the session, and say what went wrong.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from zol.common.errors import ZolError
from zol.play.reward import SENSES, Quantity, Sense, Term, expression, number, quantities, rounded
from zol.play.scene import PLAIN_COLOUR, SECOND_COLOUR, Scene
from zol.play.search import methods_for
from zol.play.session import ADAPTED, PLAIN, Moment, PlaySession, Second

NO_TASK = "no task"
SPEEDS = {"1×": 1.0, "½×": 0.5, "¼×": 0.25, "⅒×": 0.1}
FIRST_OPEN = 2  # fields whose sliders are unfolded from the start
SECONDS: dict[str, Second] = {
    "nothing": "nothing",
    "adapted": "adapted",
    "blend": "blend",
    "timeline": "timeline",
}


Handler = Callable[[Any], None]


def on(register: Any) -> Callable[[Handler], Handler]:
    """Register a handler with a control: ``@on(button.on_click)``."""

    def registered(handler: Handler) -> Handler:
        register(handler)
        return handler

    return registered


class Panel:
    """All controls of one visitor; ``client`` is a viser client handle."""

    def __init__(self, client: Any, session: PlaySession, scene: Scene) -> None:
        self._client, self._gui, self._session, self._scene = client, client.gui, session, scene
        self._quantities = quantities(session.prompter.states)
        self._terms = {quantity.text: self._default(quantity) for quantity in self._quantities}
        self._revision = -1
        self._status()
        self._motion()
        tabs = self._gui.add_tab_group()
        with tabs.add_tab("Sliders"):
            self._sliders()
        with tabs.add_tab("Type"):
            self._typing()
        with tabs.add_tab("Goal"):
            self._goal()
        with self._gui.add_folder("Adapt", expand_by_default=True):
            self._adapting()
        with self._gui.add_folder("Blend and timeline", expand_by_default=False):
            self._blending()
        with self._gui.add_folder("Take home", expand_by_default=False):
            self._taking_home()

    # What is told

    def _status(self) -> None:
        session = self._session
        world = session.world
        self._gui.add_markdown(
            f"### {session.name}" + ("" if session.name == world.name else f" · {world.name}")
        )
        self._told = self._gui.add_markdown("")
        no = np.zeros(1)
        self._curve = self._gui.add_uplot(
            (no, no, no),
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
        session = self._session
        self._told.content = _table(moment, session)
        notes = [f"*{remark}*" for remark in session.remarks]
        if session.message:
            notes.insert(0, f"**{session.message}**")
        self._remarks.content = "\n\n".join(notes)
        search = session.search
        self._progress.visible = self._stop.visible = search is not None
        if search is not None:
            self._progress.value = 100 * search.share
            self._progress_note.content = f"{search.method}: {search.share:.0%}"
        past = list(session.past)
        if len(past) > 1:
            seconds, first, second = np.array(past).T
            self._curve.data = (seconds, second if moment.shown == 2 else first, first)
        if session.revision != self._revision:
            self._revision = session.revision
            self._refresh_recipes()
            self._show_rewards()

    def found(self) -> None:
        """A search has ended."""
        self._progress_note.content = self._session.message and "the search ended without a latent"
        if self._session.adapted is not None:
            self._progress_note.content = f"found by {self._session.adapted.latent.method}"
        self._second.value = self._session.second
        self._refresh_recipes()

    def _show_rewards(self) -> None:
        states = self._session.prompter.states
        position = states.layout.find("position")
        if position is not None and position.size == 2:
            rewards = self._session.prompted.rewards.numpy()
            self._scene.paint(states["position"].numpy(), rewards)

    # Motion

    def _motion(self) -> None:
        buttons = self._gui.add_button_group("Motion", ("pause", "reset", "camera"))
        self._pause = buttons
        push = self._gui.add_button_group("Push", ("←", "→", "↑"), hint="or click a body")
        speed = self._gui.add_button_group("Speed", tuple(SPEEDS))

        @on(buttons.on_click)
        def _(_: Any) -> None:
            if buttons.value == "pause":
                self._session.paused = not self._session.paused
            elif buttons.value == "reset":
                self._session.reset()
                self._scene.restart()
            else:
                self._scene.look()

        @on(push.on_click)
        def _(_: Any) -> None:
            strength = 1.6 * self._scene.stage.size
            direction = {"←": (-1, 0, 0), "→": (1, 0, 0), "↑": (0, 0, 1.5)}[push.value]
            if self._scene.stage.seen_from_above and push.value == "↑":
                direction = (0, 1, 0)
            self._session.push([strength * part for part in direction])

        @on(speed.on_click)
        def _(_: Any) -> None:
            self._session.speed = SPEEDS[speed.value]

    # Rewards

    def _sliders(self) -> None:
        tasks = list(self._session.agent.tasks)
        first = self._session.text if self._session.text in tasks else NO_TASK
        self._task = self._gui.add_dropdown(
            "task", (NO_TASK, *tasks), initial_value=first, hint="where to start from"
        )
        self._task_weight = self._gui.add_slider("its weight", -1.0, 3.0, 0.05, 1.0)
        for handle in (self._task, self._task_weight):
            handle.on_update(self._slid)
        for k, quantity in enumerate(self._quantities):
            with self._gui.add_folder(quantity.text.replace("_", " "), expand_by_default=k < FIRST_OPEN):
                self._quantity(quantity)
        self._effort = self._gui.add_slider(
            "effort costs", 0.0, 1.0, 0.01, 0.0, hint="times the size of the action",
            visible=self._session.prompter.states.action is not None,
        )  # fmt: skip
        self._effort.on_update(self._slid)
        self._as_text = self._gui.add_markdown("")

    def _default(self, quantity: Quantity) -> Term:
        middle = rounded((quantity.low + quantity.high) / 2, quantity.step)
        return Term(quantity.text, 0.0, middle, rounded((quantity.high - quantity.low) / 4, quantity.step))

    def _quantity(self, quantity: Quantity) -> None:
        term, (low, high) = self._terms[quantity.text], quantity.bounds
        unit = f" [{quantity.unit}]" if quantity.unit else ""
        seen = f"{quantity.meaning} — seen: {number(quantity.low)} to {number(quantity.high)}"
        weight = self._gui.add_slider("weight", -2.0, 2.0, 0.05, 0.0, hint=seen)
        target = self._gui.add_slider(f"target{unit}", low, high, quantity.step, term.target, hint=seen)
        most = rounded(high - low, quantity.step)
        off = self._gui.add_slider("tolerance", 0.0, most, quantity.step, term.tolerance)
        sense = self._gui.add_dropdown("wanted", SENSES, initial_value="about")

        def changed(_: Any) -> None:
            chosen: Sense = sense.value
            self._terms[quantity.text] = Term(quantity.text, weight.value, target.value, off.value, chosen)
            self._slid(_)

        for handle in (weight, target, off, sense):
            handle.on_update(changed)

    def _slid(self, _: Any) -> None:
        tasks = {} if self._task.value == NO_TASK else {self._task.value: self._task_weight.value}
        text = expression(tasks, list(self._terms.values()), self._effort.value)
        self._as_text.content = (
            f"```\n{text}\n```" if text else "*nothing is wanted: give something a weight*"
        )
        if text:
            self._try(partial(self._session.ask, text))

    def _typing(self) -> None:
        self._typed = self._gui.add_text("reward", self._session.text, multiline=True)
        self._typed_note = self._gui.add_markdown("")
        names = ", ".join(f"`{name}`" for name in (*self._session.agent.layout.names, "action"))
        self._gui.add_markdown(
            f"fields: {names}\n\n`+ - * / **`, `< >`, `and or not`, `norm(v)`, "
            "`between(x, low, high, margin)`, `min max abs clip exp sqrt sin cos mean sum`"
        )

        @on(self._typed.on_update)
        def _(_: Any) -> None:
            try:
                self._session.ask(self._typed.value)
                self._typed_note.content = "The body follows it."
            except ZolError as error:
                self._typed_note.content = _pointed_at(error)

    def _goal(self) -> None:
        self._gui.add_markdown("Freeze the body in a pose, bend it, and ask for it.")
        freeze = self._gui.add_button("Freeze this pose")
        go = self._gui.add_button("Go there", color="blue")
        forget = self._gui.add_button("Forget the pose")
        joints: dict[str, Any] = {}

        @on(freeze.on_click)
        def _(_: Any) -> None:
            pose = self._session.freeze()
            for joint in self._session.body.joints:
                value = min(max(float(pose[joint.column]), joint.low), joint.high)
                joints[joint.name].value = round(value, 2)

        @on(go.on_click)
        def _(_: Any) -> None:
            self._try(self._session.go_there)

        @on(forget.on_click)
        def _(_: Any) -> None:
            self._session.ghost = None

        with self._gui.add_folder("Joints of the pose", expand_by_default=False):
            for joint in self._session.body.joints:
                middle = round((joint.low + joint.high) / 2, 2)
                low, high = round(joint.low, 2), round(joint.high, 2)
                slider = self._gui.add_slider(joint.name, low, high, 0.01, middle)
                joints[joint.name] = slider
                slider.on_update(partial(self._bent, joint.name))

    def _bent(self, joint: str, event: Any) -> None:
        if event.client is not None:  # moved by a hand, not by ourselves
            self._session.freeze({joint: event.target.value})

    # The second body

    def _adapting(self) -> None:
        methods = methods_for(self._session.agent)
        method = self._gui.add_dropdown("method", tuple(methods), initial_value=methods[0])
        start = self._gui.add_button(
            "Adapt", color="orange", hint="search for a better latent, in the background"
        )
        self._progress = self._gui.add_progress_bar(0.0, visible=False, color="orange")
        self._stop = self._gui.add_button("Stop", visible=False)
        self._progress_note = self._gui.add_markdown("")
        self._second = self._gui.add_dropdown("second body", tuple(SECONDS), initial_value="nothing")

        @on(start.on_click)
        def _(_: Any) -> None:
            self._session.adapt(method.value)

        @on(self._stop.on_click)
        def _(_: Any) -> None:
            self._session.stop_search()
            self._progress_note.content = ""

        @on(self._second.on_update)
        def _(_: Any) -> None:
            if self._second.value != self._session.second:
                self._try(partial(self._session.show, SECONDS[self._second.value]))
                self._second.value = self._session.second
                self._refresh_recipes()

    def _blending(self) -> None:
        name = self._gui.add_text("name", "")
        keep = self._gui.add_button_group("keep", (PLAIN, ADAPTED))
        first = self._gui.add_dropdown("from", ("–",), initial_value="–")
        last = self._gui.add_dropdown("to", ("–",), initial_value="–")
        share = self._gui.add_slider("share", 0.0, 1.0, 0.01, 0.5)
        self._gui.add_divider()
        line = self._gui.add_text("timeline", "", hint="names and seconds, such as: walk 3, stand 2")
        glide = self._gui.add_slider("glide [s]", 0.0, 3.0, 0.1, 0.5)
        play = self._gui.add_button("Play the timeline")

        @on(keep.on_click)
        def _(_: Any) -> None:
            label = name.value or f"{self._session.text[:24]} {len(self._session.shelf) + 1}"
            self._try(partial(self._session.keep, label.replace(",", " "), keep.value))
            shelf = tuple(self._session.shelf) or ("–",)
            for dropdown in (first, last):
                dropdown.options = shelf
            first.value, last.value = shelf[0], shelf[-1]
            line.value = ", ".join(f"{kept} 3" for kept in self._session.shelf)

        def blended(_: Any) -> None:
            if first.value in self._session.shelf and last.value in self._session.shelf:
                self._try(partial(self._session.blend, first.value, last.value, share.value))
                self._second.value = self._session.second

        share.on_update(blended)

        @on(play.on_click)
        def _(_: Any) -> None:
            self._try(lambda: self._session.play_timeline(timeline_of(line.value), glide.value))
            self._second.value = self._session.second

    def _taking_home(self) -> None:
        self._recipes = self._gui.add_markdown("")
        buttons = self._gui.add_button_group("write", ("latent", "ONNX", "film"))
        note = self._gui.add_markdown("")

        @on(buttons.on_click)
        def _(_: Any) -> None:
            note.content = "writing …"
            write = {"latent": self._session.save, "ONNX": self._session.export, "film": self._session.film}
            try:
                note.content = f"written: `{write[buttons.value]()}`"
            except (ZolError, OSError) as error:
                note.content = f"**{error}**"

    def _refresh_recipes(self) -> None:
        session = self._session
        self._recipes.content = f"```python\n{session.python}\n```\n\n```bash\n{session.command}\n```"

    def _try(self, action: Callable[[], object]) -> None:
        """Do what was asked for; if it cannot be done, say why and go on as before."""
        try:
            action()
        except ZolError as error:
            self._session.message = str(error)


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


def _table(moment: Moment, session: PlaySession) -> str:
    """Reward, mean and return of the bodies, with the estimates made beforehand."""
    titles = ["plain", str(session.second)][: moment.shown]
    asked = [PLAIN, ADAPTED if session.second == "adapted" else ""][: moment.shown]
    estimates = [session.estimates.answer(who) if who else None for who in asked]
    rows = [
        ["", *titles],
        ["---"] * (moment.shown + 1),
        ["reward now", *(f"{value:.3f}" for value in moment.rewards[: moment.shown])],
        ["mean of 2 s", *(f"**{value:.3f}**" for value in moment.recent[: moment.shown])],
        ["return", *(f"{value:.1f}" for value in moment.returns[: moment.shown])],
        ["estimate", *("…" if found is None else str(found) for found in estimates)],
    ]
    reached = "" if session.latency is None else f" · obeyed after {1000 * session.latency:.0f} ms"
    state = "paused · " if session.paused else ""
    code = "".join(f"{abs(int(value * 997)) % 16:x}" for value in session.plain.z[:6].tolist())
    last = " and ".join(f"{value:.1f}" for value in session.last_returns[: moment.shown])
    about = f"{state}step {moment.step} of {session.world.episode_length} · latent `{code}`{reached}"
    about += f" · last episode {last}" if last else ""
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\n{about}"


def _pointed_at(error: ZolError) -> str:
    """What is wrong with a typed reward, and where."""
    sentence, _, place = str(error).partition("\n")
    return f"**{sentence}**" + (f"\n```\n{place}\n```" if place else "")


def _css(colour: tuple[int, int, int]) -> str:
    return f"rgb({colour[0]}, {colour[1]}, {colour[2]})"
