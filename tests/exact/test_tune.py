"""Tuning: it begins at the model's own value and policy, and its losses are those of TD3, row by row."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import zol
from zol.adapt import find_method, solve, tune
from zol.adapt.critic import FrozenCritic
from zol.adapt.tune import Labelled, TuneConfig, Tuning
from zol.collect.donut import collect
from zol.common.errors import CheckpointError, DataError
from zol.data import Dataset
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.session import Agent
from zol.worlds.donut import Donut

GAMMA = 0.9


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def fb() -> Network:
    config = FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=GAMMA, hidden=32, backward_hidden=32)
    return fb_network(config, generator(4)).double()


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    world, data = Donut(), collect(400, generator(5))
    found = Evidence.gather(data, [world.tasks["square"]], world.layout, samples=300)
    rows = {name: getattr(found, name).double() for name in ("obs", "rewards", "starts", "before", "action")}
    return Evidence(found.tasks, data=found.data, terminated=found.terminated, **rows)


def tuning(fb: Network, evidence: Evidence, **settings: float) -> Tuning:
    z = fb.project(evidence.prompt(fb))[0]
    return Tuning(fb, evidence, z, TuneConfig(learning_rate=1e-2).updated(**settings))


def batch(evidence: Evidence, n: int = 12) -> Labelled:
    assert evidence.before is not None
    assert evidence.action is not None
    discount = torch.full((n,), GAMMA, dtype=torch.float64)
    discount[:3] = 0.0  # the world ended
    rows = (evidence.before[:n], evidence.action[:n], evidence.obs[:n])
    return Labelled(*rows, evidence.rewards[0, :n], discount)


def test_it_begins_at_the_models_own_value_and_policy(fb: Network, evidence: Evidence) -> None:
    made, some = tuning(fb, evidence), batch(evidence)
    assert torch.equal(made.act(some.obs), fb.act(some.obs, made.z))
    own = FrozenCritic.of(fb, evidence).value(some.obs[None], made.z.expand(1, 1, -1), some.action[None])
    assert torch.allclose(made.value(made.critic, some.obs, some.action), own[:, 0])


def test_targets_row_by_row(fb: Network, evidence: Evidence) -> None:
    made, some = tuning(fb, evidence, noise=0.5, noise_clip=0.4), batch(evidence)
    made.update(some, generator(1))  # so that slow copies differ from what is trained
    found = made.target(some, generator(2))
    noise = torch.randn(len(some.obs), 2, generator=generator(2), dtype=torch.float64)
    moment = (fb.backward(evidence.obs) * evidence.rewards[0, :, None]).mean(0).detach()
    for row, epsilon in enumerate(noise):
        there = some.next_obs[row]
        action = made.slow.act(there, made.z) + (0.5 * epsilon).clamp(-0.4, 0.4)
        values = [float(F @ moment) for F in made.slow.forward(there, made.z, action.clamp(-1, 1))]
        expected = float(some.reward[row]) + (0.0 if row < 3 else GAMMA * min(values))
        assert float(found[row]) == pytest.approx(expected, abs=1e-9)


@torch.no_grad()
def slow_actor_loss(made: Tuning, some: Labelled, moment: Tensor) -> float:
    least, sizes, cloning = [], [], []
    for obs, action in zip(some.obs, some.action, strict=True):
        own = made.model.act(obs, made.z)
        values = [float(F @ moment) for F in made.model.forward(obs, made.z, own)]
        least.append(min(values))
        sizes += [abs(value) for value in values]
        cloning += [float(x) for x in (own - action).square()]
    size, n = sum(sizes) / len(sizes), len(least)
    return -sum(least) / n / size + made.config.bc * sum(cloning) / len(cloning)


def test_the_actors_loss_row_by_row(fb: Network, evidence: Evidence) -> None:
    made, some = tuning(fb, evidence, bc=0.7), batch(evidence)
    moment = (fb.backward(evidence.obs) * evidence.rewards[0, :, None]).mean(0).detach()
    assert float(made.actor_loss(some).detach()) == pytest.approx(
        slow_actor_loss(made, some, moment), abs=1e-9
    )


def test_one_update_moves_critic_and_actor_and_nothing_else(fb: Network, evidence: Evidence) -> None:
    made, some = tuning(fb, evidence), batch(evidence)
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    given = {name: value.clone() for name, value in fb.state_dict().items()}
    made.update(some, generator(3))
    moved = {name for name, value in made.model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in moved} == {"forward_map", "actor"}
    assert all(torch.equal(value, given[name]) for name, value in fb.state_dict().items()), "its own copy"
    actor = {name: value.clone() for name, value in made.model.actor.state_dict().items()}
    made.update(some, generator(3))
    assert all(torch.equal(value, actor[name]) for name, value in made.model.actor.state_dict().items())


def test_the_value_of_a_policy_that_stays_becomes_exact(fb: Network, evidence: Evidence) -> None:
    """In a state that leads to itself with reward 1, Q becomes 1 / (1 − γ), whatever F said before."""
    made = tuning(fb, evidence, target_rate=0.2, noise=0.0)
    made.actor_optimiser.scale_learning_rate(0.0)
    here = torch.zeros(8, 2, dtype=torch.float64)
    action = made.act(here).detach()
    some = Labelled(here, action, here, torch.ones(8).double(), torch.full((8,), GAMMA).double())
    for step in range(400):
        made.critic_optimiser.scale_learning_rate(1.0 - step / 400)
        made.update(some, generator(step))
    assert made.value(made.critic, here, action)[:, 0].tolist() == pytest.approx([10.0, 10.0], rel=0.02)


@pytest.fixture(scope="module")
def agent() -> Agent:
    """One that was hardly trained, with the data it was trained on."""
    data = collect(600, generator(0))
    sizes: dict[str, Any] = {"hidden": 16, "backward_hidden": 16, "z_dim": 6, "batch_size": 32}
    return Agent(zol.pretrain(data, "fb", steps=5, **sizes).checkpoint, data=data)


def test_a_skill_that_was_tuned(agent: Agent) -> None:
    assert agent.data is not None
    obs = agent.data.sample(5, generator(1)).obs.numpy()
    first, again = (agent.adapt("square", "tune", steps=20) for _ in range(2))
    assert (first.act(obs) == again.act(obs)).all(), "same seed, same bits"
    assert (first.act(obs) != agent.adapt("square", "fb").act(obs)).any()


def test_it_learns_from_as_many_transitions_as_it_wants(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(tune, "_tuned", lambda problem, sample, z, config: seen.append(len(sample.obs)))
    agent.adapt("square", "tune", imagined=False)
    assert seen == [find_method("tune").samples]
    assert len(agent.problem(["square"]).evidence.obs) < find_method("tune").samples


def test_a_sample_of_states_alone_is_refused(agent: Agent) -> None:
    problem = agent.problem(["square"])
    states = replace(problem, evidence=replace(problem.evidence, before=None), dynamics=None)
    with pytest.raises(CheckpointError, match="bring data, --data FOLDER"):
        solve("tune", states)


def test_a_model_without_an_actor_is_refused(agent: Agent) -> None:
    config = FBConfig(obs_dim=2, action_dim=2, z_dim=8, hidden=16, backward_hidden=16, discrete=True)
    problem = replace(agent.problem(["square"]), model=fb_network(config, generator()))
    with pytest.raises(CheckpointError, match="does not consist of them"):
        solve("tune", problem)


def test_data_of_another_world_are_refused(agent: Agent) -> None:
    rows = torch.zeros(20, 3).numpy()
    with pytest.raises(
        DataError, match="these data have 3 observations and 3 actions, this model takes 2 and 2"
    ):
        Agent(agent.checkpoint, data=Dataset.from_arrays(rows, rows, next_obs=rows))
