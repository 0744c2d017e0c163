"""Controls and drawing of ``zol play`` without a browser: a stand-in for viser remembers what it is told."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import zol
from zol.common.errors import ZolError
from zol.play.prompting import Prompter
from zol.play.session import PlaySession
from zol.play.tally import Moment
from zol.worlds import make
from zol.worlds.donut import Donut

pytest.importorskip("mjviser", reason="mjviser is not installed (extra play)")

from zol.play.panel import Panel, timeline_of
from zol.play.scene import Scene
from zol.play.stage import stage_of


class Control:
    """A control, a node of the scene or a folder: whatever is set stays, and handlers can be called."""

    def __init__(self, kind: str, *words: Any, **named: Any) -> None:
        self.kind, self.words = kind, words
        self.__dict__.update(named)
        self.label = words[0] if words else ""
        self.value = named.get("initial_value", words[-1] if len(words) > 1 else None)
        self.content = self.label
        self.handlers: list[Any] = []

    def on_click(self, handler: Any) -> None:
        self.handlers.append(handler)

    on_update = on_click

    def add_tab(self, label: str) -> "Control":
        return Control("tab", label)

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, *error: Any) -> None: ...


class StandIn:
    """Stands for ``client.gui`` and ``client.scene``."""

    def __init__(self) -> None:
        self.controls: list[Control] = []

    def __getattr__(self, name: str) -> Any:
        def add(*words: Any, **named: Any) -> Control:
            self.controls.append(Control(name.removeprefix("add_"), *words, **named))
            return self.controls[-1]

        return add

    def find(self, label: str, which: int = 0) -> Any:
        return [control for control in self.controls if control.label == label][which]

    def use(self, label: str, value: Any, which: int = 0) -> None:
        """What a visitor does with a control."""
        control = self.find(label, which)
        control.value = value
        for handler in control.handlers:
            handler(SimpleNamespace(client=self, target=control))

    def notes(self) -> str:
        return "\n".join(str(one.content) for one in self.controls if one.kind in ("markdown", "html"))


class Client:
    def __init__(self) -> None:
        self.gui, self.scene, self.camera = StandIn(), StandIn(), SimpleNamespace()

    def atomic(self) -> Any:
        return nullcontext()

    def flush(self) -> None: ...


@pytest.fixture
def session(tiny_checkpoint: Path, tmp_path: Path) -> PlaySession:
    agent = zol.load(tiny_checkpoint)
    return PlaySession(agent, Donut(), Prompter(agent), name="tiny", out=tmp_path)


@pytest.fixture
def page(session: PlaySession) -> tuple[StandIn, Panel, PlaySession]:
    client = Client()
    scene = Scene(client, stage_of(session.world), session.push)
    return client.gui, Panel(client, session, scene), session


Page = tuple[StandIn, Panel, PlaySession]


def test_sliders_ask_and_show_what_they_ask_for(page: Page) -> None:
    gui, panel, session = page
    gui.use("weight", 0.5)
    gui.use("target", 1.2)
    gui.use("wanted", "at least")
    gui.use("task", "no task")
    tolerance = gui.find("tolerance").value
    assert session.text == f"0.5 * between(radius, 1.2, inf, {tolerance:g})"
    assert session.text in gui.notes()
    gui.use("effort costs", 0.1)
    assert session.text.endswith("- 0.1 * norm(action)")
    gui.use("effort costs", 0.0)
    gui.use("weight", 0.0)
    assert "nothing is wanted" in gui.notes()
    panel.tell(session.step())
    assert "mean of 2 s" in gui.notes()


def test_typing(page: Page) -> None:
    gui, _, session = page
    gui.use("reward", "raduis > 1")
    assert "did you mean 'radius'?" in gui.notes()
    assert "^^^^^^" in gui.notes()
    gui.use("reward", "radius > 1")
    assert session.text == "radius > 1"
    assert "The body follows it." in gui.notes()


def test_motion(page: Page) -> None:
    gui, _, session = page
    gui.use("Motion", "pause")
    assert session.paused
    gui.use("Speed", "¼×")
    assert session.speed == 0.25
    before = session.world.physics.clone()
    gui.use("Push", "→")
    assert bool((session.world.physics[:, 0] > before[:, 0]).all())
    session.step()
    gui.use("Motion", "reset")
    assert session.tally.steps == 0


def test_a_pose_is_frozen_bent_and_gone_to(page: Page) -> None:
    gui, _, session = page
    gui.use("Freeze this pose", True)
    assert session.ghost is not None
    assert gui.find("x").value == pytest.approx(float(session.ghost[0]), abs=0.01)
    gui.use("x", 0.7)
    assert float(session.ghost[0]) == pytest.approx(0.7)
    gui.use("Go there", True)
    assert session.plain.method == "goal"
    gui.use("Forget the pose", True)
    assert session.ghost is None


def test_adapting_blending_and_timelines(page: Page) -> None:
    gui, panel, session = page
    gui.use("second body", "adapted")
    assert "press adapt first" in session.message
    assert gui.find("second body").value == "nothing"
    gui.find("method").value = "ridge"
    gui.use("Adapt", True, which=1)  # the first is the folder around it
    assert session.search is not None
    panel.tell(session.step())
    session.search.wait(60)
    assert session.collect()
    panel.found()
    assert gui.find("second body").value == "adapted"
    assert "found by ridge" in gui.notes()
    panel.tell(session.step())
    assert "<td>plain</td><td>adapted</td>" in gui.notes()
    gui.find("name").value = "a"
    gui.use("keep", "plain")
    gui.find("name").value = "b"
    gui.use("keep", "adapted")
    gui.use("share", 0.3)
    assert session.blended == ("a", "b", 0.3)
    assert gui.find("timeline").value == "a 3, b 3"
    gui.use("Play the timeline", True)
    assert session.timeline == (("a", 3.0), ("b", 3.0))
    assert session.second == "timeline"


def test_taking_home(page: Page, tmp_path: Path) -> None:
    gui, panel, session = page
    panel.tell(session.step())
    assert f"--task {session.text}" in gui.notes()
    gui.use("write", "latent")
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    gui.use("write", "film")
    assert "nothing to film" in gui.notes()


def test_a_timeline_that_makes_no_sense() -> None:
    assert timeline_of("walk fast 3, stand .5,") == [("walk fast", 3.0), ("stand", 0.5)]
    with pytest.raises(ZolError, match="'walk' is not a name and seconds"):
        timeline_of("walk")


@pytest.mark.parametrize("name", ["walker", "quadruped", "point_mass_maze"])
def test_bodies_are_drawn_on_floors_of_their_own(name: str) -> None:
    world = make(name)
    states = world.reset(2, torch.Generator().manual_seed(0))
    assert states.physics is not None
    physics = states.physics.clone()
    stage, client = stage_of(world), Client()
    if stage.follows[0]:
        column = 1 if name == "walker" else 0  # of the way it walks
        physics[:, column] = torch.tensor([7.0, -3.0], dtype=torch.float64)
    scene = Scene(client, stage, lambda velocity, which: None)
    scene.draw(Moment(1, physics, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 2), physics[0])
    names = ("plain", "second", "ghost")
    torsos = [client.scene.find(f"/{name}/0") for name in names]
    frames = [client.scene.find(f"/{name}") for name in names]
    where, turned = stage.poses(physics)
    apart = client.scene.find("/lane1").position[0]
    assert apart > stage.size
    centre = where[:, 0, 0] if stage.follows[0] else np.zeros(2)
    expected = where[:, 0, 0] - centre + [0, apart]
    for k, torso in enumerate(torsos[:2]):
        np.testing.assert_allclose(torso.position[0], expected[k], atol=1e-5)
        np.testing.assert_allclose(torso.position[2], where[k, 0, 2], atol=1e-5)
        np.testing.assert_allclose(torso.wxyz, turned[k, 0], atol=1e-6)
    np.testing.assert_allclose(torsos[2].position, torsos[0].position, atol=1e-6)  # the frozen pose
    assert [frame.visible for frame in frames] == [True, True, True]
    scene.draw(Moment(2, physics, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 1), None)
    assert [frame.visible for frame in frames] == [True, False, False]
    assert client.scene.find("/lane1").visible is False


def test_the_floor_passes_below_a_body_that_walks() -> None:
    """Its lines lie where lines of the ground would: a whole number of their distances from x = 0."""
    world, client = make("walker"), Client()
    stage = stage_of(world)
    scene = Scene(client, stage, lambda velocity, which: None)
    physics = world.reset(2, torch.Generator().manual_seed(0)).physics
    assert physics is not None
    lines = client.scene.find("/lane0/lines0")
    apart = np.diff(np.unique(lines.words[1][:, 0].round(6)))[1]  # thin and wide gaps alternate
    apart += np.diff(np.unique(lines.words[1][:, 0].round(6)))[0]
    seen = set()
    for x in (0.0, 0.3, 5.1, -2.2):
        physics = physics.clone()
        physics[:, 1] = x
        scene.draw(Moment(1, physics, (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), 1), None)
        travelled = stage.poses(physics)[0][0, 0, 0]
        shift = lines.position[0]
        assert 0 <= shift < apart + 1e-9
        off = ((shift + travelled) / apart + 0.5) % 1 - 0.5  # in distances, to the nearest whole one
        assert abs(off) < 1e-4
        seen.add(round(shift, 4))
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["walker", "cheetah", "quadruped"])
def test_bodies_are_few_triangles_of_the_right_size(name: str) -> None:
    """mjviser's own meshes are the reference; ours are cheaper to draw by far."""
    from mjviser.conversions import merge_geoms

    domain = make(name).domain  # type: ignore[attr-defined]
    model, stage = domain.model, stage_of(make(name))
    drawn = [g for g in range(model.ngeom) if stage._is_drawn(g)]  # type: ignore[attr-defined]
    bodies = stage._bodies  # type: ignore[attr-defined]
    for part, body in zip(stage.parts, bodies, strict=True):
        fine = merge_geoms(model, [g for g in drawn if model.geom_bodyid[g] == body])
        ours = np.stack([part.vertices.min(0), part.vertices.max(0)])
        assert np.abs(ours - fine.bounds).max() < 0.05 * np.ptp(fine.bounds, axis=0).max()
        assert len(part.faces) <= len(fine.faces)
    assert sum(len(part.faces) for part in stage.parts) < 7000


def test_a_click_pushes_the_body_that_was_hit() -> None:
    pushed: list[Any] = []
    client = Client()
    stage = stage_of(make("walker"))
    Scene(client, stage, lambda velocity, which: pushed.append((velocity, which)))
    hit = SimpleNamespace(ray_direction=(0.0, 1.0, 0.0), ray_origin=(0.4, -5.0, stage.height))
    client.scene.find("/plain/0").handlers[0](hit)
    ((velocity, which),) = pushed
    assert which == 0
    assert velocity[0] < 0  # away from the side that was hit
