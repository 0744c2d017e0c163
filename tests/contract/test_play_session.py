"""The session behind ``zol play``, without a browser: from rewards and goals to latents and returns."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from present import present

import zol
from zol import checkpoint
from zol.collect.donut import collect
from zol.common.errors import DataError, WorldError, ZolError
from zol.play import take_home
from zol.play.body import Joint, MujocoBody, PointBody, body_of, posed
from zol.play.prompting import Prompter
from zol.play.remarks import remarks
from zol.play.reward import Quantity, Term, expression, quantities
from zol.play.search import Search, methods_for
from zol.play.session import PLAIN, PlaySession
from zol.play.timeline import repeated
from zol.session import Agent
from zol.tasks import Task
from zol.tasks.expression import typed_task, wanted_values
from zol.worlds import make
from zol.worlds.dmc.world import ControlWorld
from zol.worlds.donut import Donut


@pytest.fixture(scope="module")
def agent(tiny_checkpoint: Path) -> Agent:
    return zol.load(tiny_checkpoint)


@pytest.fixture(scope="module")
def prompter(agent: Agent) -> Prompter:
    return Prompter(agent)


@pytest.fixture
def session(agent: Agent, prompter: Prompter, tmp_path: Path) -> PlaySession:
    return PlaySession(agent, Donut(), prompter, name="my model", out=tmp_path / "out")


@pytest.mark.parametrize("reward", ["cross", "radius > 1", "position[0] - 0.1 * norm(action)"])
def test_the_page_prompts_as_everybody_does(session: PlaySession, agent: Agent, reward: str) -> None:
    session.ask(reward)
    wanted = agent.adapt(reward, "fb").latent
    torch.testing.assert_close(session.plain.z, wanted.z, rtol=0, atol=1e-6)
    assert (session.plain.task, session.plain.method, session.plain.data) == (reward, "fb", wanted.data)


def test_a_checkpoint_that_names_no_world_and_carries_no_sample(agent: Agent) -> None:
    """As of another project: the world and the states to apply rewards to are given."""
    nameless = checkpoint.Checkpoint(agent.model, {}, {})
    data = collect(500, torch.Generator().manual_seed(0))
    given = Agent(nameless, world=Donut(), data=data)
    found = PlaySession(given, Donut(), Prompter(given))
    found.ask("radius > 1")
    assert found.step().rewards[0] in (0.0, 1.0)
    found.close()


def test_a_world_whose_tasks_the_sample_cannot_be_scored_by_begins_with_a_goal(
    agent: Agent, prompter: Prompter
) -> None:
    class Demanding(Donut):
        tasks: ClassVar = {  # type: ignore[misc]
            "touch": Task("touch", lambda s: s["a sensor that was not stored"])
        }

    given = Agent(agent.checkpoint, world=Demanding())
    found = PlaySession(given, Demanding(), prompter)
    assert found.plain.method == "goal"
    found.close()


def test_features_of_the_sample_are_computed_once(
    prompter: Prompter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(obs: torch.Tensor) -> torch.Tensor:
        raise AssertionError("B was computed again")

    monkeypatch.setattr(prompter.model, "backward", refuse)
    prompter.reward(Task("right", lambda s: s["position"][..., 0]))


def test_a_step_is_what_the_world_and_the_policy_make_of_it(session: PlaySession, agent: Agent) -> None:
    session.ask("position[0]")
    before = session.states
    moment = session.step()
    world = Donut()
    world.set_physics(present(before.physics))
    after = world.step(agent.model.act(before.obs, session.plain.z.expand(2, -1)))
    torch.testing.assert_close(moment.physics, after.physics)
    torch.testing.assert_close(moment.physics[0], moment.physics[1])  # processors may round rows differently
    assert moment.rewards[0] == pytest.approx(float(after.obs[0, 0]))


def test_returns_are_sums_and_start_again_with_every_reward(session: PlaySession) -> None:
    session.ask("radius")
    earned = [session.step().rewards[0] for _ in range(7)]
    moment = session.step()
    assert moment.returns[0] == pytest.approx(sum(earned) + moment.rewards[0])
    assert moment.recent[0] == pytest.approx(moment.returns[0] / 8)
    session.ask("1 - radius")
    again = session.step()
    assert again.step == 1
    assert again.returns[0] == pytest.approx(again.rewards[0])
    assert session.latency is not None


def test_an_episode_ends_and_the_next_begins(session: PlaySession) -> None:
    moments = [session.step() for _ in range(session.world.episode_length)]
    assert session.tally.last_returns == moments[-1].returns
    assert session.step().step == 1


def test_a_wrong_reward_changes_nothing(session: PlaySession) -> None:
    session.ask("radius > 1")
    before, revision = session.plain, session.revision
    for wrong in ("raduis > 1", "radius > 99", "", "position", "1 / (radius - radius)", "sqare"):
        with pytest.raises(ZolError):
            session.ask(wrong)
    assert session.plain is before
    assert session.revision == revision
    session.step()


def test_what_is_typed_never_runs_a_file(session: PlaySession, tmp_path: Path) -> None:
    mine = tmp_path / "evil.py"
    mine.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef f(s): return s['radius']")
    for text in (f"{mine}:f", f"{mine}", "__import__('os')"):
        with pytest.raises(ZolError):
            session.ask(text)
    assert not (tmp_path / "ran").exists()


def test_a_goal_is_a_pose_to_go_to(session: PlaySession, agent: Agent) -> None:
    ghost = session.freeze({"x": 0.5, "y": -0.7})
    assert ghost.tolist() == pytest.approx([0.5, -0.7])
    session.go_there()
    torch.testing.assert_close(session.plain.z, zol.prompt.goal(agent.model, ghost))
    assert session.plain.method == "goal"
    assert session.prompted.task.goal is not None
    assert session.step().rewards[0] <= 0
    session.world.set_physics(ghost.expand(2, -1))
    assert float(session.prompted.task(session.world.set_physics(ghost[None]))[0]) == pytest.approx(
        0, abs=1e-6
    )
    assert "zol.prompt.goal(agent.model, goal)" in take_home.python(session)


def test_adapting_goes_on_in_the_background_and_moves_the_second_body(session: PlaySession) -> None:
    session.ask("radius > 1")
    with pytest.raises(DataError, match="press adapt first"):
        session.show("adapted")
    session.adapt("zol steps=3")
    assert session.search is not None
    session.search.wait(60)
    assert session.collect()
    assert session.second == "adapted"
    moment = session.step()
    assert moment.shown == 2
    assert moment.step == 1  # both begin in the same state, with nothing earned
    assert session.adapted is not None
    torch.testing.assert_close(session.latents, torch.stack([session.plain.z, session.adapted.latent.z]))
    session.ask("radius")  # what was found for another reward is not shown any more
    shown = session.second, session.adapted
    assert shown == ("nothing", None)  # type: ignore[comparison-overlap]


def test_a_search_stops_when_nobody_wants_its_answer(agent: Agent) -> None:
    search = Search(agent, agent.tasks["cross"], "zol steps=100000")
    search.stop()
    search.wait(60)
    assert not search.running
    assert (search.skill, search.error) == (None, "stopped")


def test_a_method_that_fails_says_why(session: PlaySession) -> None:
    session.adapt("rehearse")
    assert session.search is not None
    session.search.wait(60)
    assert session.collect()
    assert "no learned world" in session.message
    assert "rehearse" not in methods_for(session.agent)


def test_latents_blend_on_the_sphere(session: PlaySession) -> None:
    for text in ("radius > 1", "position[0]"):
        session.ask(text)
        session.keep(text)
    a, b = (session.shelf[name].z for name in session.shelf)
    for share, expected in ((0.0, a), (1.0, b)):
        session.blend("radius > 1", "position[0]", share)
        torch.testing.assert_close(session.latents[1], expected)
    session.blend("radius > 1", "position[0]", 0.5)
    middle = session.latents[1]
    torch.testing.assert_close(middle, (a + b) / (a + b).norm() * a.norm())
    assert session.skill.latent.method == "blend"
    with pytest.raises(DataError, match="is on the shelf"):
        session.blend("radius > 1", "nothing", 0.5)


def test_a_timeline_of_latents(session: PlaySession) -> None:
    for text in ("radius > 1", "position[0]"):
        session.ask(text)
        session.keep(text)
    a, b = (latent.z for latent in session.shelf.values())
    session.play_timeline([("radius > 1", 0.1), ("position[0]", 0.15)])
    seen = []
    for _ in range(7):
        seen.append(session.latents[1])
        session.step()
    assert torch.equal(torch.stack(seen), torch.stack([a, a, b, b, b, a, a]))
    glided = repeated([a, b], [2, 4], blend=2)
    torch.testing.assert_close(glided(3), (a + b) / (a + b).norm() * a.norm())
    assert torch.equal(glided(4), b)


def test_pushes(session: PlaySession) -> None:
    before = present(session.states.physics).clone()
    session.push((1.0, 0.0, 0.0))
    torch.testing.assert_close(session.states.physics, before + torch.tensor([0.2, 0.0]))
    session.push((0.0, -1.0, 0.0), which=1)
    after = present(session.states.physics)
    assert after[0, 1] == before[0, 1]
    assert after[1, 1] != before[1, 1]


def test_a_walker_is_pushed_posed_and_put_to_rest() -> None:
    world = make("walker")
    body = body_of(world)
    assert isinstance(body, MujocoBody)
    assert body.timestep == pytest.approx(0.025)
    world.reset(2, torch.Generator().manual_seed(0))
    physics = world.physics
    names = [f"root{axis}" for axis in "zxy"]
    change = (body.pushed(physics, torch.tensor([2.0, 0.0, 3.0])) - physics)[0, 9:12]
    assert isinstance(world, ControlWorld)
    model = world.domain.model
    assert {n: float(change[model.joint(n).dofadr[0]]) for n in names} == {
        "rootz": 3.0,
        "rootx": 2.0,
        "rooty": 0.0,
    }
    still = posed(body, physics[0], {"right knee": -1.0})
    assert float(still[9:].abs().sum()) == 0
    assert float(still[model.joint("right_knee").qposadr[0]]) == -1.0
    assert "rootx" not in [joint.name for joint in body.joints]


def test_worlds_without_a_body_are_refused() -> None:
    with pytest.raises(WorldError, match="no body that a page could show"):
        body_of(make("four_rooms"))
    assert isinstance(body_of(Donut()), PointBody)
    assert Joint("x", 0, -1.5, 1.5) in body_of(Donut()).joints


def test_sliders_are_an_expression(prompter: Prompter) -> None:
    terms = [
        Term("radius", 2.0, 1.2, 0.3),
        Term("position[0]", -1, 0.5, 0.1, "at least"),
        Term("position[1]"),
    ]
    text = expression({"cross": 1.0, "square": 0.0}, terms, effort=0.1)
    assert text == (
        "cross + 2 * between(radius, 1.2, 1.2, 0.3) - 1 * between(position[0], 0.5, inf, 0.1) "
        "- 0.1 * norm(action)"
    )
    typed_task(text, prompter.states.layout, Donut.tasks)(prompter.states)
    assert str(Term("radius", 1, 0.5, 0.2, "at most")) == "1 * between(radius, -inf, 0.5, 0.2)"
    assert expression({}, []) == ""


def test_quantities_of_a_world(prompter: Prompter) -> None:
    found = {quantity.text: quantity for quantity in quantities(prompter.states)}
    assert list(found) == ["radius", "position[0]", "position[1]"]
    radius = found["radius"]
    assert 0.2 < radius.low < radius.high < 1.6
    low, high = radius.bounds
    assert low < radius.low
    assert high > radius.high
    assert Quantity("x", 0.0, 10.0).step == pytest.approx(0.1)


def test_remarks_in_words(prompter: Prompter) -> None:
    def said(text: str) -> str:
        task = typed_task(text, prompter.states.layout)
        return " ".join(remarks(text, task(prompter.states), prompter.states))

    assert said("radius") == ""
    assert "every behaviour earns the same" in said("1 + 0 * radius")
    assert "hardly ever seen radius above" in said("between(radius, 3, inf, 1)")
    assert "hardly ever seen position[0] below" in said("1 - (position[0] < -7)")
    few = torch.zeros(len(prompter.states.obs))
    few[3] = 2.0
    assert (
        "earn more than half of the best, 2: the latent rests on few states"
        in remarks("radius", few, prompter.states)[0]
    )
    assert wanted_values("a = 1 - (3 < speed) * between(x[1], -2, inf, 9)") == [
        ("speed", None, 3.0),
        ("x", 1, -2.0),
    ]
    assert wanted_values("(((") == []


def test_estimates_come_later_and_belong_to_what_is_shown(session: PlaySession) -> None:
    import time

    pytest.importorskip("mjviser", reason="mjviser is not installed (extra play)")
    from zol.play.panel import table

    session.ask("radius")
    assert session.estimates.answer(PLAIN) is None
    for _ in range(200):
        if (found := session.estimates.answer(PLAIN)) is not None:
            break
        time.sleep(0.05)
    assert found is not None
    assert found.likely is None or found.likely[0] < found.mean < found.likely[1]
    assert found.estimator == "ratio"
    assert session.estimates.told.startswith("by ratio; on donut: rank correlation")
    shown = table(session.step(), session)
    assert f"<td>{found}</td>" in shown
    assert f"estimate per step, offline, {session.estimates.told}" in shown
    session.close()


def test_what_is_taken_home(session: PlaySession, agent: Agent, tmp_path: Path) -> None:
    session.ask("(radius > 1) - 0.1*norm(action)")
    path = take_home.save(session)
    assert agent.skill(path).latent.z.tolist() == pytest.approx(session.plain.z.tolist())
    assert json.loads(path.read_text())["task"] == session.text
    assert take_home.command(session) == (
        "zol adapt 'my model' --reward '(radius > 1) - 0.1*norm(action)' --method fb --episodes 20"
    )
    assert 'agent.adapt("(radius > 1) - 0.1*norm(action)", "fb")' in take_home.python(session)
    session.ask("cross")
    assert "--task cross" in take_home.command(session)
    with pytest.raises(WorldError, match="nothing to film"):
        take_home.film(session)


def test_the_python_of_the_page_runs(session: PlaySession, tiny_checkpoint: Path) -> None:
    session.name = str(tiny_checkpoint)
    session.ask("(radius > 1)")
    text = take_home.python(session).replace("episodes=20", "episodes=1")
    names: dict[str, Any] = {}
    exec(text, names)
    torch.testing.assert_close(names["skill"].latent.z, session.plain.z)
