"""Three ways to say what is wanted: sliders over fields, a typed expression, a pose to go to."""

from functools import partial
from typing import Any

from zol.common.errors import ZolError
from zol.play.controls import attempt, on
from zol.play.reward import SENSES, Quantity, Sense, Term, expression, number, quantities, rounded
from zol.play.session import PlaySession

NO_TASK = "no task"
FIRST_OPEN = 2  # fields whose sliders are unfolded from the start


class Sliders:
    """A task to start from and a term for every field; together they are an expression that can be read."""

    def __init__(self, gui: Any, session: PlaySession) -> None:
        self._gui, self._session = gui, session
        found = quantities(session.prompter.states)
        self._terms = {quantity.text: _default(quantity) for quantity in found}
        tasks = tuple(session.agent.tasks)
        first = session.text if session.text in tasks else NO_TASK
        self._task = gui.add_dropdown("task", (NO_TASK, *tasks), initial_value=first, hint="to start from")
        self._weight = gui.add_slider("its weight", -1.0, 3.0, 0.05, 1.0)
        for k, quantity in enumerate(found):
            with gui.add_folder(quantity.text.replace("_", " "), expand_by_default=k < FIRST_OPEN):
                self._add(quantity)
        acts = session.prompter.states.action is not None
        about = "times the size of the action"
        self._effort = gui.add_slider("effort costs", 0.0, 1.0, 0.01, 0.0, hint=about, visible=acts)
        self._text = gui.add_markdown("")
        for handle in (self._task, self._weight, self._effort):
            handle.on_update(self._changed)

    def _add(self, quantity: Quantity) -> None:
        term, (low, high) = self._terms[quantity.text], quantity.bounds
        unit = f" [{quantity.unit}]" if quantity.unit else ""
        seen = f"{quantity.meaning} (seen: {number(quantity.low)} to {number(quantity.high)})"
        weight = self._gui.add_slider("weight", -2.0, 2.0, 0.05, 0.0, hint=seen)
        target = self._gui.add_slider(f"target{unit}", low, high, quantity.step, term.target, hint=seen)
        most = rounded(high - low, quantity.step)
        off = self._gui.add_slider("tolerance", 0.0, most, quantity.step, term.tolerance)
        sense = self._gui.add_dropdown("wanted", SENSES, initial_value="about")

        def changed(event: Any) -> None:
            chosen: Sense = sense.value
            self._terms[quantity.text] = Term(quantity.text, weight.value, target.value, off.value, chosen)
            self._changed(event)

        for handle in (weight, target, off, sense):
            handle.on_update(changed)

    def _changed(self, event: Any) -> None:
        tasks = {} if self._task.value == NO_TASK else {self._task.value: self._weight.value}
        text = expression(tasks, list(self._terms.values()), self._effort.value)
        if text:  # the body first: writing keeps the browser busy
            attempt(self._session, partial(self._session.ask, text))
        self._text.content = f"```\n{text}\n```" if text else "*nothing is wanted: give something a weight*"


class Typing:
    """An expression, read at every keystroke: the body follows as soon as it makes sense."""

    def __init__(self, gui: Any, session: PlaySession) -> None:
        self._session = session
        self._box = gui.add_text("reward", session.text, multiline=True)
        self._note = gui.add_markdown("")
        names = ", ".join(f"`{name}`" for name in (*session.agent.layout.names, "action"))
        gui.add_markdown(
            f"fields: {names}\n\n`+ - * / **`, `< >`, `and or not`, `norm(v)`, "
            "`between(x, low, high, margin)`, `min max abs clip exp sqrt sin cos mean sum`"
        )
        self._box.on_update(self._changed)

    def _changed(self, event: Any) -> None:
        try:
            self._session.ask(self._box.value)
            self._note.content = "The body follows it."
        except ZolError as error:
            sentence, _, place = str(error).partition("\n")
            self._note.content = f"**{sentence}**" + (f"\n```\n{place}\n```" if place else "")


class Goal:
    """A frozen pose, bent joint by joint, to go to."""

    def __init__(self, gui: Any, session: PlaySession) -> None:
        gui.add_markdown("Freeze the body in a pose, bend it, and ask for it.")
        freeze = gui.add_button("Freeze this pose")
        go = gui.add_button("Go there", color="blue")
        forget = gui.add_button("Forget the pose")
        sliders: dict[str, Any] = {}
        with gui.add_folder("Joints of the pose", expand_by_default=False):
            for joint in session.body.joints:
                low, high = round(joint.low, 2), round(joint.high, 2)
                slider = gui.add_slider(joint.name, low, high, 0.01, round((low + high) / 2, 2))
                sliders[joint.name] = slider
                slider.on_update(partial(_bent, session, joint.name))

        @on(freeze.on_click)
        def _(event: Any) -> None:
            pose = session.freeze()
            for joint in session.body.joints:
                value = min(max(float(pose[joint.column]), joint.low), joint.high)
                sliders[joint.name].value = round(value, 2)

        @on(go.on_click)
        def _(event: Any) -> None:
            attempt(session, session.go_there)

        @on(forget.on_click)
        def _(event: Any) -> None:
            session.ghost = None


def _bent(session: PlaySession, joint: str, event: Any) -> None:
    if event.client is not None:  # moved by a hand, not by ourselves
        session.freeze({joint: event.target.value})


def _default(quantity: Quantity) -> Term:
    middle = rounded((quantity.low + quantity.high) / 2, quantity.step)
    return Term(quantity.text, 0.0, middle, rounded((quantity.high - quantity.low) / 4, quantity.step))
