"""The session: an agent, a skill, actions and what they earn, in the words of a user."""

import json
from fnmatch import fnmatch
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
import torch

import zol
from zol import checkpoint
from zol.adapt import METHODS, find_method, prompted, solve
from zol.cli import main
from zol.collect.donut import collect
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError, MissingExtra, ZolError
from zol.evidence import Evidence
from zol.fields import Layout, States
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.report import number
from zol.session import Agent, Evaluation, Skill, load
from zol.session.skill import each_acting
from zol.tasks import Task
from zol.train import prompt_sample
from zol.train.learned_world import WorldConfig, learn_world
from zol.value import ESTIMATORS, accuracy
from zol.worlds.donut import Donut


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny donut model with a learned world, and the same without any world."""
    path = tmp_path_factory.mktemp("session")
    data = collect(2000, generator())
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=16), generator(1))
    sample = prompt_sample(data, 0)
    checkpoint.save(
        model, path / "donut", prompt=sample, facts={"world": "donut", "data": data.fingerprint()}
    )
    checkpoint.save(model, path / "nameless", prompt=sample)
    settings = WorldConfig(steps=20, batch_size=32, width=16)
    learn_world(data, Donut().layout, settings).save(path / "donut" / checkpoint.DYNAMICS)
    return path


@pytest.fixture(scope="module")
def agent(folder: Path) -> Agent:
    return load(folder / "donut")


def test_from_a_name_of_the_zoo_to_a_number() -> None:
    agent = zol.load("walker")
    assert agent.world is not None
    assert "run" in agent.tasks
    skill = agent.adapt(lambda s: s["torso_height"] > 1.2, "fb")
    obs = agent.world.reset(3, generator()).obs
    assert skill.act(obs.numpy()).shape == (3, agent.world.action_dim)
    assert "torso_height" in agent.layout.names


def test_rehearsal_begins_with_the_models_own_prompt() -> None:
    data = collect(500, generator())
    small: dict[str, Any] = {"z_dim": 5, "hidden": 16, "backward_hidden": 16, "batch_size": 32}
    agent = zol.pretrain(data, "laplacian", steps=5, dynamics_steps=5, **small)
    assert agent.method() == "rehearse"
    shortly: dict[str, Any] = {"horizon": 5, "rounds": 1, "goals": 1, "random_latents": 1, "population": 2}
    found = agent.adapt(["square", "cross"], "rehearse", **shortly).found
    own = agent.adapt(["square", "cross"], "plain").found
    torch.testing.assert_close(found.start, own.z[0])


def test_numpy_in_numpy_out_and_batches_of_any_shape(agent: Agent) -> None:
    skill = agent.adapt("square", "fb")
    obs = np.random.default_rng(0).uniform(-1, 1, (4, 5, 2))  # float64, as simulators give them
    actions = skill.act(obs)
    assert isinstance(actions, np.ndarray)
    assert actions.shape == (4, 5, 2)
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_allclose(skill.act(obs[1, 2]), actions[1, 2], atol=1e-6)
    there = skill.act(torch.as_tensor(obs))
    assert isinstance(there, torch.Tensor)
    assert not there.requires_grad
    np.testing.assert_allclose(there.numpy(), actions)
    wanted = agent.model.act(torch.as_tensor(obs).float(), skill.latent.z)
    np.testing.assert_allclose(actions, wanted.detach().numpy(), atol=1e-6)
    wrongs: tuple[Any, ...] = (np.zeros(3), np.zeros((2, 3)), np.float32(1.0))
    for wrong in wrongs:
        with pytest.raises(DataError, match="an observation has 2 columns"):
            skill.act(wrong)


def right(s: States) -> torch.Tensor:
    """Be on the right."""
    return (s["position"][..., 0] > 0).float()


@pytest.mark.parametrize(
    "reward",
    [
        lambda s: s["position"][..., 0] > 0,
        lambda s: (s["position"][..., 0] > 0).int(),
        lambda s: np.asarray(s["position"][..., 0] > 0),
        lambda s: np.asarray(s["position"][..., 0] > 0, dtype=np.float64),
        Task("mine", right),
    ],
    ids=["bool", "int", "numpy bool", "numpy float", "task"],
)
def test_rewards_of_every_kind_mean_the_same(agent: Agent, reward) -> None:
    skill, wanted = agent.adapt(reward, "fb"), agent.adapt(right, "fb")
    torch.testing.assert_close(skill.latent.z, wanted.latent.z, rtol=0, atol=0)
    assert wanted.latent.task == "right"
    assert wanted.task is not None
    assert wanted.task.description == "Be on the right."
    assert agent.evaluate([skill, wanted], episodes=2).returns.shape == (2, 2)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (lambda s: 1.0, "gave a float: a reward gives one number per state"),
        (lambda s: s["position"], "returned shape"),
        (lambda s: np.asarray(s["position"]), "returned shape"),
        (lambda s: s["positon"], "did you mean 'position'"),
        (lambda s: s["radius"] * torch.nan, "NaN or infinity"),
        (lambda s: 0 * s["radius"], "nothing is left to adapt to"),
        ("sqare", "did you mean 'square'"),
        (Task("square", right), "donut has a task 'square' of its own"),
        ([right, right], "rewards need names of their own"),
    ],
)
def test_mistakes_are_one_sentence(agent: Agent, reward, expected: str) -> None:
    with pytest.raises(ZolError, match=expected):
        agent.adapt(reward, "fb")


def test_a_typed_reward_is_a_task_like_any_other(agent: Agent, folder: Path, tmp_path: Path) -> None:
    text = "(radius > 0.8) - 0.1 * norm(action)"
    skill = agent.adapt(text, "fb")
    same = agent.adapt(
        lambda s: (s["radius"] > 0.8).float() - 0.1 * s.need_action().norm(dim=-1).to(s.obs), "fb"
    )
    torch.testing.assert_close(skill.latent.z, same.latent.z)
    assert skill.latent.task == text
    assert [s.latent.task for s in agent.adapt({"edge": "radius > 0.8", "in": "cross/2"}, "fb")] == [
        "edge",
        "in",
    ]
    skill.save(tmp_path / "skill.json")
    again = agent.skill(tmp_path / "skill.json")  # its text is all that is needed to score it
    assert agent.evaluate(again, 2).returns.tolist() == agent.evaluate(skill, 2).returns.tolist()
    assert load(folder / "nameless").adapt("obs[0] > 0", "fb").latent.task == "obs[0] > 0"


def test_several_tasks_are_adapted_together_and_nothing_is_written_into_the_world(agent: Agent) -> None:
    before = dict(agent.tasks)
    nothing = Task("nothing", lambda s: torch.zeros_like(s["radius"]))
    skills = agent.adapt(["square", right, nothing, lambda s: s["radius"], lambda s: s["radius"] ** 2], "fb")
    assert [skill.latent.task for skill in skills] == ["square", "right", "reward 1", "reward 2"]
    assert skills.unrewarded == ("nothing",)
    assert skills["right"] is skills[1]
    with pytest.raises(DataError, match="did you mean 'right'"):
        skills["righ"]
    assert [s.latent.task for s in agent.adapt({"a": right, "b": "square"}, "fb")] == ["a", "square"]
    assert [s.latent.task for s in agent.adapt(method="fb")] == list(agent.tasks)
    assert dict(agent.tasks) == before


def test_a_skill_is_what_the_registry_finds(agent: Agent) -> None:
    """The same problem, the same streams of random numbers, the same latents to the last bit."""
    tasks = ["square", "cross"]
    for method, changes in (
        ("zol", {"steps": 3}),
        ("perturb", {}),
        ("rehearse", {"horizon": 3, "rounds": 1}),
    ):
        skills = agent.adapt(tasks, method, seed=5, **changes)
        settings = find_method(method).settings.updated(**changes)
        found = solve(method, agent.problem(tasks, seed=5), settings).found
        assert torch.equal(torch.stack([skill.latent.z for skill in skills]), found.z[0])
        assert {skill.latent.method for skill in skills} == {method}


def test_auto_is_what_fits_the_checkpoint(agent: Agent, folder: Path) -> None:
    assert agent.method() == "rehearse"  # episodes of the donut are no longer than it looks ahead
    assert load("point_mass_maze").method() == "episodes"  # these are
    assert load(folder / "nameless").method() == "fb"
    assert load("walker").method() == "episodes"  # it practised
    assert agent.adapt("square", horizon=2, rounds=0).latent.method == "rehearse"
    with pytest.raises(ZolError, match="did you mean 'rehearse'"):
        agent.adapt("square", "rehears")
    with pytest.raises(ZolError, match="did you mean 'horizon'"):
        agent.adapt("square", "rehearse", horizn=3)
    with pytest.raises(CheckpointError, match="no learned world"):
        load(folder / "nameless").adapt(right_of_plain, "rehearse")


def right_of_plain(s: States) -> torch.Tensor:
    return (s["obs"][..., 0] > 0).float()


def test_evaluations_are_paired_and_stand_beside_random_actions(agent: Agent) -> None:
    skills = agent.adapt(["square", "cross"], "fb")
    both = agent.evaluate(skills, episodes=3, seed=4)
    one = agent.evaluate(skills["cross"], episodes=3, seed=4)
    np.testing.assert_allclose(both.returns[1], one.returns[0], atol=1e-4)
    assert both.returns.shape == both.random.shape == (2, 3)
    assert both.intervals[0].low <= both.intervals[0].value <= both.intervals[0].high
    text = str(both)
    for word in ("square by fb: return", "random actions", "3 episodes of 100 steps in donut", "95 %"):
        assert word in text
    assert repr(both) == text
    assert isinstance(both, Evaluation)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_values_are_of_every_skill_on_its_own_task(agent: Agent, estimator: str) -> None:
    skills = agent.adapt(["square", "cross"], "fb")
    settings = quick(estimator)
    both = agent.value([skills[1], skills[0], skills[1]], estimator, settings=settings)
    assert both.mean.shape == both.error.shape == (3,)
    assert bool((both.low <= both.high).all())
    torch.testing.assert_close(both.mean[0], both.mean[2])
    alone = agent.value(skills["square"], estimator, settings=settings)
    torch.testing.assert_close(alone.mean[0], both.mean[1], rtol=1e-4, atol=1e-5)


def quick(estimator: str) -> Config | None:
    """Settings for networks that a test can wait for."""
    own = ESTIMATORS[estimator].settings
    return None if own is None else own.updated(steps=5, hidden=8)


def test_other_models_quote_no_accuracy_that_was_measured_on_fb(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skills, estimates and tables name who made a number; what FB's models had is said of FB alone."""
    known = agent.adapt("square", "fb")
    assert "by ratio; on donut: rank correlation" in repr(known)
    monkeypatch.setitem(agent.checkpoint.facts, "model", "hilp")
    skill = agent.adapt("square", "fb")
    one, several = agent.value(skill, "ratio"), agent.value(skill, ["ratio", "lstd"])
    for said in map(repr, (skill, agent.adapt(["square", "cross"], "fb"), one, several)):
        assert "y ratio, whose accuracy in this world was not measured" in said
        assert "rank correlation" not in said
        assert "interval" not in said
    assert one.likely is None
    assert [row[2] for row in several.cells()[1]] == ["–", "–"]
    for silent in (skill.latent, agent.adapt(["square", "cross"], "fb").found):
        assert "estimate" not in repr(silent)  # no number without its maker


def test_estimators_stand_side_by_side(agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that fits a terminal, and a sentence that comes from measured accuracy alone."""
    skill = agent.adapt("square", "fb")
    names = ["ratio", "value", "lstd", "imagination"]
    judged = agent.value(skill, names)
    assert list(judged.estimates) == names
    for name, one in judged.estimates.items():
        torch.testing.assert_close(one.mean, agent.value(skill, name).mean[0])
    columns, rows = judged.cells()
    assert columns[:4] == ["by", "per step", "likely", "return"]
    ratio = judged.estimates["ratio"]
    assert [rows[0][1], rows[0][3]] == [f"{float(ratio.mean):.3f}", number(100 * float(ratio.mean))]
    assert rows[1][4:8] == ["–"] * 4  # the model's own value has no ratio
    monkeypatch.setattr(accuracy, "FILE", folder / "nowhere.json")
    assert "has not compared them" in judged.advice
    assert "by ratio, whose accuracy on donut was not measured" in repr(skill)
    measured = {"lstd": {"mean_abs_error": 0.1, "spearman_global": 0.5}, "value": {"mean_abs_error": 0.2}}
    whole = {"ratio": {"donut": {"spearman_near": 0.3, "coverage": 0.02}}}
    held = {"walker": 0.9, "maze": 0.8}
    near = {"level": 0.95, "low": -0.1, "high": 0.3, "held_out": held, "mean_abs_error": {"donut": 0.4}}
    table = {
        "all": whole,
        "few": {name: {"donut": values} for name, values in measured.items()},
        "near": {"ratio": near, "value": near | {"held_out": {"walker": 0.9, "maze": 0.43}}},
    }
    (folder / "accuracy.json").write_text(json.dumps(table))
    monkeypatch.setattr(accuracy, "FILE", folder / "accuracy.json")
    assert judged.advice.startswith("Believe lstd: on donut it came nearest to true returns")
    assert "rank correlation 0.50 with true returns, off by 0.10 per step" in judged.advice
    assert judged.advice.endswith("Not measured there: ratio, imagination.")
    assert judged.advice in repr(judged)
    told = "by ratio; on donut: 0.30 near a prompt, off by 0.40 per step there on average"
    assert told in repr(skill)
    assert all(f"By {name}" in repr(judged) for name in names)  # every row's accuracy, measured or not
    assert f"offline, {told}" in repr(agent.value(skill, "ratio"))
    # Intervals are those that were measured, in rewards of the data's range, if they held elsewhere.
    judged = agent.value(skill, ["ratio", "value"])
    ratio, mean = judged.estimates["ratio"], float(judged.estimates["ratio"].mean)
    assert ratio.likely is not None
    assert ratio.likely.tolist() == pytest.approx([max(mean - 0.1, 0), min(mean + 0.3, 1)])
    low, high = ratio.likely.tolist()
    assert [row[2] for row in judged.cells()[1]] == [f"{low:.2f} to {high:.2f}", "–"]
    assert "its interval, made from other worlds, held 80% of true values on maze and more" in repr(judged)
    assert "no interval: one made from other worlds held only 43% of true values on maze" in repr(judged)
    assert f"likely {low:.3g} to {high:.3g}; offline, by ratio" in repr(agent.value(skill, "ratio"))
    several = agent.value([skill, agent.adapt("cross", "fb")], ["value", "ratio"])
    assert [one.task for one in several] == ["square", "cross"]


def test_what_an_estimator_lacks_stands_below_the_table(folder: Path) -> None:
    agent = load(folder / "nameless")
    judged = agent.value(agent.adapt(right_of_plain), ["value", "imagination"])
    assert list(judged.estimates) == ["value"]
    assert "learned world" in judged.left_out["imagination"]
    assert judged.cells()[1][0][3] == "–"  # without a world nobody knows how long an episode is
    assert any(note.startswith("imagination needs a learned world") for note in judged.notes)


def test_gpi_acts_as_a_skill_like_any_other(agent: Agent) -> None:
    """Its behaviour is a choice among latents in every state; the skills of several tasks keep apart."""
    found = solve("gpi", agent.problem(["square", "cross"]))
    skills = agent.adapt(["square", "cross"], "gpi")
    assert found.policy is not None
    obs = torch.rand(7, 2, generator=generator(2)) - 0.5
    wanted = found.policy(obs.expand(2, -1, -1))
    for k, skill in enumerate(skills):
        torch.testing.assert_close(skill.act(obs), wanted[k])
    plain = agent.adapt("square", "fb")
    returns = agent.evaluate([skills[1], plain, skills[0]], episodes=2).returns
    assert returns.shape == (3, 2)
    np.testing.assert_allclose(returns[0], agent.evaluate(skills[1], episodes=2).returns[0], atol=1e-4)
    with pytest.raises(DataError, match="more than one latent"):
        skills[0].save("never.json")
    together = each_acting([skills[1], plain])  # what a film of both shows
    assert together is not None
    torch.testing.assert_close(together(obs.expand(2, -1, -1)), torch.stack([wanted[1], plain.act(obs)]))
    assert each_acting([plain]) is None


def test_a_skill_is_saved_and_read_by_its_own_agent_only(agent: Agent, tmp_path: Path) -> None:
    skill = agent.adapt(right, "ridge")
    skill.save(tmp_path / "skill.json")
    again = agent.skill(tmp_path / "skill.json")
    obs = np.array([0.5, 0.5], dtype=np.float32)
    np.testing.assert_array_equal(again.act(obs), skill.act(obs))
    with pytest.raises(DataError, match="say what it is scored by"):
        agent.evaluate(again, episodes=1)
    assert agent.evaluate(agent.skill(tmp_path / "skill.json", task=right), episodes=1).tasks == ("right",)
    with pytest.raises(CheckpointError, match="made for model"):
        zol.load("point_mass_maze").skill(tmp_path / "skill.json")


def test_without_a_world_there_are_skills_but_nothing_to_test_them_in(folder: Path) -> None:
    agent = load(folder / "nameless")
    skill = agent.adapt(right_of_plain)
    assert skill.act(np.zeros(2)).shape == (2,)
    with pytest.raises(CheckpointError, match="needs a world or an environment"):
        agent.evaluate(skill)
    with pytest.raises(CheckpointError, match="no named tasks"):
        agent.adapt("square")
    with pytest.raises(CheckpointError, match="no named tasks"):
        agent.adapt()
    given = Agent(checkpoint.load(folder / "nameless"), world=Donut())
    assert given.evaluate(given.adapt("square", "fb"), episodes=1).returns.shape == (1, 1)


def test_the_world_is_made_when_it_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the simulator can still load the model, act with saved skills and export it."""

    def missing(name: str) -> None:
        raise MissingExtra("mujoco", "dmc", f"the world '{name}'")

    monkeypatch.setattr("zol.session.opened.make", missing)
    agent = load(folder / "donut")
    latent = Latent(torch.ones(8), identity(agent.model), "square", "fb")
    assert Skill(agent.model, latent).act(np.zeros(2)).shape == (2,)
    with pytest.raises(MissingExtra, match="mujoco"):
        _ = agent.world


def test_a_world_that_is_given_is_the_one_to_adapt_in(folder: Path) -> None:
    class Counting(Donut):
        taken = 0

        def step(self, action: torch.Tensor) -> States:
            self.taken += len(action)
            return super().step(action)

    world = Counting()
    agent = Agent(checkpoint.load(folder / "donut"), world=world)
    agent.adapt("square", "lola", environment_steps=40, horizon=2, samples=4)
    assert world.taken == 40


def test_searches_begin_at_the_models_own_prompt(folder: Path, tmp_path: Path) -> None:
    donut = load(folder / "donut")
    facts = {"world": "donut", "prompt": "ridge"}
    checkpoint.save(donut.model, tmp_path / "other", prompt=donut.checkpoint.prompt, facts=facts)
    ridge, plain = load(tmp_path / "other").problem("square"), donut.problem("square")
    assert torch.equal(ridge.start, plain.evidence.prompt(plain.model, "ridge"))
    assert torch.equal(plain.start, plain.evidence.prompt(plain.model))
    assert not torch.equal(ridge.start, plain.start)


def test_states_of_ones_own_for_a_checkpoint_without_a_sample(folder: Path, tmp_path: Path) -> None:
    checkpoint.save(load(folder / "donut").model, tmp_path / "bare", facts={"world": "donut"})
    with pytest.raises(DataError, match="carries no sample of states"):
        load(tmp_path / "bare").adapt("square", "fb")
    data = collect(500, generator(3))
    skill = load(tmp_path / "bare", data=data).adapt("square", "fb")
    assert skill.latent.data == data.fingerprint()


def test_an_exported_skill(agent: Agent, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    result = agent.export(tmp_path, agent.adapt(["square"], "fb"), fixed=True)
    assert result.graphs == ("policy-square-fb.onnx",)


def test_the_command_line_exports_models_of_the_zoo(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    task = ["--task", "reach_top_left", "--method", "fb"]
    main(["adapt", "point_mass_maze", *task, "--out", str(tmp_path / "latents")])
    latent = tmp_path / "latents" / "reach_top_left.json"
    main(["export", "point_mass_maze", "--latents", str(latent), "--out", str(tmp_path / "robot")])
    assert (tmp_path / "robot" / "policy.onnx").stat().st_size > 1000
    assert "reach_top_left" in (tmp_path / "robot" / "latents.json").read_text()


def test_what_an_agent_says_of_itself_teaches(agent: Agent, folder: Path) -> None:
    assert "world donut" in repr(agent)
    assert "agent.adapt(" in repr(agent)
    assert 's["obs"]' in repr(load(folder / "nameless"))
    assert "skill.act(observation)" in repr(agent.adapt("square", "fb"))


def test_labels_keep_whole_transitions_as_far_as_the_sample_has_them(folder: Path) -> None:
    stored = checkpoint.load(folder / "donut").prompt
    sample = {name: value for name, value in stored.items() if name not in ("before", "terminated")}
    world, count = Donut(), len(sample["obs"])
    plain = Evidence.from_sample(sample, world.layout, world.tasks, starts=7, data="x")
    assert (plain.before, plain.terminated) == (None, None)
    assert plain.starts.shape == (7, 2)
    whole = sample | {"before": sample["obs"] + 1, "terminated": torch.zeros(count, dtype=torch.bool)}
    evidence = Evidence.from_sample(whole, world.layout, world.tasks).only("cross", "square")
    assert evidence.tasks == ("cross", "square")
    assert evidence.before is whole["before"]
    assert evidence.terminated is whole["terminated"]
    assert evidence.action is whole["action"]
    torch.testing.assert_close(
        evidence.rewards[0], world.tasks["cross"](States(sample["obs"], world.layout)).float()
    )
    with pytest.raises(DataError, match="did you mean 'cross'"):
        evidence.only("cros")
    with pytest.raises(DataError, match="carries no sample"):
        Evidence.from_sample({"obs": sample["obs"]}, world.layout, world.tasks)
    assert Evidence.from_sample(sample, Layout.plain(2), [Task("x", right_of_plain)]).tasks == ("x",)


def test_a_problem_is_what_every_method_gets(agent: Agent) -> None:
    problem = agent.problem(["square"], starts=11, seed=3)
    assert problem.world is None
    assert problem.domain == "donut"
    assert len(problem.evidence.starts) == 11
    assert problem.generator("zol").initial_seed() == agent.problem(seed=3).generator("zol").initial_seed()
    assert isinstance(agent.adapt("square", "fb"), Skill)
    z = prompted(problem.model, problem.evidence).z
    torch.testing.assert_close(agent.adapt("square", "fb").latent.z, z[0, 0], rtol=0, atol=0)
    assert "fb" in METHODS


def test_a_checkpoint_carries_whole_transitions(agent: Agent) -> None:
    """Evidence of an agent knows s, a, s' and whether the episode ended, as TD on a sample needs them."""
    data = collect(2_000, generator(0))
    evidence = Evidence.from_sample(prompt_sample(data, 0), Donut.layout, Donut.tasks)
    again = data.sample(len(evidence.obs), generator(0))
    assert evidence.before is not None
    assert evidence.action is not None
    assert evidence.terminated is not None
    for got, stored in (
        (evidence.before, again.obs),
        (evidence.action, again.action),
        (evidence.obs, again.next_obs),
        (evidence.terminated, again.terminated),
    ):
        assert torch.equal(got, stored)
    assert evidence.only("cross").before is evidence.before
    old = {name: value for name, value in prompt_sample(data, 0).items() if name in ("obs", "starts")}
    assert Evidence.from_sample(old, Donut.layout, Donut.tasks).before is None


@pytest.mark.parametrize(
    "reward",
    [
        lambda s: (s["position"][:, 0] > 0).astype(float),
        lambda s: np.where(s.obs[:, 0] > 0, 1.0, 0.0),
        lambda s: np.sum(s["position"] * np.array([1.0, 0.0]), axis=-1) > 0,
        lambda s: np.ones(1) * (s["position"][:, 0] > 0),
    ],
    ids=["astype", "rows", "axis", "array first"],
)
def test_rewards_written_in_numpy_mean_the_same_everywhere(agent: Agent, reward) -> None:
    """Prompted from rows of data, rehearsed on imagined states of other shapes, and scored in rollouts."""
    torch.testing.assert_close(agent.adapt(reward, "fb").latent.z, agent.adapt(right, "fb").latent.z)
    one, other = (agent.adapt(r, "rehearse", horizon=3, rounds=1) for r in (reward, right))
    torch.testing.assert_close(one.latent.z, other.latent.z)
    first, second = (agent.evaluate(s, episodes=2).returns for s in (one, other))
    np.testing.assert_allclose(first, second)
    with pytest.raises(TypeError, match="unsupported operand"):  # the user's own mistake, as it was made
        agent.adapt(lambda s: s["position"] + "x", "fb")  # type: ignore[operator]


def test_an_agent_is_saved_and_opened_as_it_was(agent: Agent, tmp_path: Path) -> None:
    again = load(agent.save(tmp_path / "copy"))
    assert again.facts["weights"] == agent.facts["weights"]
    assert again.method() == "rehearse"  # the learned world came along
    assert list(again.tasks) == list(agent.tasks)
    a, b = (one.adapt("cross", "fb") for one in (agent, again))
    assert torch.equal(a.latent.z, b.latent.z)
    assert "README.md" in {file.name for file in (tmp_path / "copy").iterdir()}
    with pytest.raises(DataError, match="already exists"):
        agent.save(tmp_path / "copy")


class Hub:
    """Stands in for the hub: it keeps what is uploaded in a folder. Nothing here touches a network."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, token: str | None = None) -> "Hub":
        self.token = token
        return self

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
        if name == "somebody/else":
            raise OSError("403 Forbidden")
        self.private = private
        (self.root / name).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
        copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)

    def snapshot_download(self, name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        for file in (self.root / name).iterdir():
            if not any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                file.unlink()
        return str(self.root / name)


def test_an_agent_on_the_hub_and_back(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("huggingface_hub")
    hub = Hub(tmp_path)
    monkeypatch.setattr(library, "HfApi", hub)
    monkeypatch.setattr(library, "snapshot_download", hub.snapshot_download)
    address = agent.push_to_hub("me/donut", private=True, token="secret")
    assert address == "hf://me/donut"
    assert (hub.private, hub.token) == (True, "secret")
    card = (tmp_path / "me" / "donut" / "README.md").read_text()
    assert card.startswith('---\nlibrary_name: "zol"\npipeline_tag: "reinforcement-learning"\n')
    assert 'zol.load("hf://me/donut")' in card
    again = load(address)
    assert again.facts["weights"] == agent.facts["weights"]
    assert again.facts["origin"] == address
    assert again.method() == "rehearse"
    assert torch.equal(again.adapt("cross", "fb").latent.z, agent.adapt("cross", "fb").latent.z)
    with pytest.raises(CheckpointError, match=r"could not publish somebody/else: 403 Forbidden\. Uploading"):
        agent.push_to_hub("somebody/else")
    with pytest.raises(CheckpointError, match="expected organisation/name"):
        agent.push_to_hub("donut")


def test_what_things_say_of_themselves_is_short(agent: Agent) -> None:
    data = collect(200, generator())
    skills = agent.adapt(["square", "cross"], "fb")
    for thing, words in (
        (data, "200 transitions of donut in 20 episodes"),
        (agent.label(list(agent.tasks.values())), "rewards of 5 tasks: square"),
        (skills.found, "latents of 8 numbers for square, cross"),
        (skills[0].latent, "for 'square' by fb"),
        (agent.checkpoint, "a learned world"),
        (agent.dynamics, "one step misses"),
        (skills[0], "skill.act(observation) acts"),
        (agent, "agent.adapt("),
    ):
        assert words in repr(thing)
        assert len(repr(thing)) < 500
    assert "push_to_hub" in (Agent.__doc__ or "")


def test_evidence_of_one_task_and_of_what_is_none() -> None:
    data, task = collect(200, generator()), Task("right", lambda s: s["obs"][..., 0])
    assert Evidence.gather(data, task).tasks == ("right",)
    assert torch.equal(
        Evidence.gather(data, [task]).obs, Evidence.gather(data, task, generator=generator()).obs
    )
    for wrong in (right, [right], {"right": right}):
        with pytest.raises(DataError, match="'right' is a function, a task was expected"):
            Evidence.gather(data, wrong)  # type: ignore[arg-type]
