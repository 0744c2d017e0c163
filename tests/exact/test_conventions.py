"""Whoever reads a value, a ratio or a Bellman equation off a model gets the same numbers in every convention.

Each test runs one consumer on exact models of all eight conventions (normalised × begins × centred), and of
the centred measure of features that keep their mean, as FB learns it, and compares it with linear algebra on
the MDP.
"""

import itertools
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zol
from zol import prompt
from zol.adapt.critic import FrozenCritic
from zol.adapt.environments import TaskEnvironments
from zol.adapt.gpi import gpi_policy
from zol.adapt.lola import LoLAConfig, lookahead_returns
from zol.adapt.problem import Problem
from zol.adapt.zol import zol_search
from zol.adapt.zol_settings import ZOLConfig
from zol.bench import ranking
from zol.data import Batch
from zol.evidence import Evidence
from zol.imagination.dynamics import DynamicsConfig
from zol.imagination.learned_world import LearnedWorld
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import CENTRED, Measure
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.train.health import HealthSample, check_health
from zol.value import ESTIMATORS, ValueProblem
from zol.worlds.tabular import FiniteMDP, TabularWorld, chain

EXACT: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-7}
CONVENTIONS = [
    Measure(normalised, begins, offset)  # type: ignore[arg-type]
    for normalised, begins, offset in itertools.product((False, True), ("next", "current"), (0.0, 1.0))
]
MODELS = [*((measure, True) for measure in CONVENTIONS), (CENTRED, False)]  # and whether features have mean 0
STATES, STARTS, GAMMA = 6, 4, 0.6
EVERY = torch.eye(STATES, dtype=torch.float64)
REWARDS = 3 * torch.rand(2, STATES, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TrueChain(nn.Module):
    """The chain's own transitions in the form of a dynamics ensemble with one member."""

    members = 1

    def __init__(self, mdp: FiniteMDP) -> None:
        super().__init__()
        self.config = DynamicsConfig(obs_dim=STATES, action_dim=2, members=1)
        self.mdp = mdp

    def forward(self, states: Tensor, actions: Tensor, noise: Tensor | None = None) -> Tensor:
        return self.mdp.transition[states.argmax(-1), actions.argmax(-1)]


@dataclass
class Case:
    """An exact model of a corridor where moves are certain and policies all but greedy.

    One rollout is then the expectation, so that imagined rollouts are exact as well.
    """

    model: ExactFB
    world: TabularWorld
    evidence: Evidence
    tasks: list[Task]
    learned: LearnedWorld
    z: Tensor  # [K, d]
    P: Tensor  # [K, S, S], the transitions of each latent's policy

    @property
    def problem(self) -> ValueProblem:
        return ValueProblem(self.model, self.evidence, self.tasks, self.world.layout, self.learned)

    def values(self) -> Tensor:
        """E Σ_t γ^t r(s_{t+1}) from every state, ``[K, T, S]``."""
        arrival = torch.einsum("kst,nt->kns", self.P, REWARDS)  # P r
        return torch.linalg.solve((EVERY - GAMMA * self.P).unsqueeze(1), arrival.unsqueeze(-1)).squeeze(-1)

    def start_values(self) -> Tensor:
        """(1 − γ) E_{s0} of them, ``[K, T]``."""
        return (1 - GAMMA) * self.values()[..., :STARTS].mean(-1)


def named(case: tuple[Measure, bool]) -> str:
    how, centred = case
    return f"{how.normalised}-{how.begins}-{how.offset}{'' if centred else '-features with a mean'}"


@pytest.fixture(params=MODELS, ids=named, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    corridor = chain(STATES, discount=GAMMA, slip=0.0)
    mdp = FiniteMDP(corridor.transition, EVERY[:STARTS].mean(0), GAMMA)
    density = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    measure, centred = request.param
    model = ExactFB(
        mdp, density, temperature=1e-3, measure=measure, features_centred=centred, generator=seeded(2)
    )
    evidence = Evidence(("a", "b"), EVERY, REWARDS, EVERY[:STARTS])
    tasks = [
        Task(name, partial(lambda row, s: s["state"].double() @ row, row))
        for name, row in zip(evidence.tasks, REWARDS, strict=True)
    ]
    dynamics = TrueChain(mdp)
    learned = LearnedWorld(dynamics, EVERY[:STARTS], EVERY.unsqueeze(0), EVERY[None, 1:, :2])  # type: ignore[arg-type]
    # Latents of rewards without ties, and the same policies whatever the convention.
    raw = torch.randn(5, STATES, generator=seeded(4), dtype=torch.float64)
    z = model.project(raw - (raw @ model.rotation @ density.sqrt()).outer(model.rotation @ density.sqrt()))
    return Case(model, TabularWorld("chain", mdp), evidence, tasks, learned, z, mdp.under(model.policy(z)))


def test_the_policies_are_all_but_greedy(case: Case) -> None:
    policy = case.model.policy(case.z)
    assert policy.amax(-1).min() > 1 - 1e-9


@pytest.mark.parametrize("name", ["ratio", "value"])
def test_estimates_of_latents(case: Case, name: str) -> None:
    found = ESTIMATORS[name].estimate(case.problem, case.z)
    torch.testing.assert_close(found.mean, case.start_values(), **EXACT)


def test_the_ratio_knows_its_error(case: Case) -> None:
    """The standard error is that of the estimate of next-state returns in every convention."""
    found = ESTIMATORS["ratio"].estimate(case.problem, case.z)
    d = case.model.mdp.occupancy(case.model.policy(case.z), case.model.measure.begins)  # [K, S]
    J = d @ REWARDS.mT
    own = (d.square().unsqueeze(1) * (REWARDS - J.unsqueeze(-1)).square()).sum(-1).sqrt()  # w = d/ρ, N = 1/ρ
    factor = GAMMA if case.model.measure.begins == "current" else 1.0
    torch.testing.assert_close(found.error, own / factor, **EXACT)


def test_estimates_by_imagination_do_not_depend_on_the_measure(case: Case) -> None:
    found = ESTIMATORS["imagination"].estimate(case.problem, case.z)
    position, total = EVERY[:STARTS].expand(len(case.z), -1, -1), torch.zeros(len(case.z), 2, STARTS)
    for _ in range(200):
        position = position @ case.P
        total = total + torch.einsum("kst,nt->kns", position, REWARDS)
    torch.testing.assert_close(found.mean, total.mean(-1) / 200, **EXACT)


@pytest.mark.parametrize("horizon", [1, 3])
def test_imagined_rollouts_end_with_the_models_own_value(case: Case, horizon: int) -> None:
    """With true dynamics and an exact model the horizon does not matter."""
    moments = prompt.reward_moments(case.model, case.evidence.obs, case.evidence.rewards)
    rollouts = ImaginedRollouts(
        case.model,
        case.learned.dynamics,
        case.world.layout,
        case.tasks,
        EVERY,
        horizon,
        bootstrap=moments,
    )
    got = rollouts.values(case.z, seeded())[:, 0]  # [K, T, S]
    torch.testing.assert_close(got, (1 - GAMMA) * case.values(), **EXACT)


def test_estimates_of_a_search(case: Case) -> None:
    """What a method reports beside its latents, here of searches that take no step."""
    unshaped = ZOLConfig(steps=0, shaping="linear", clip=1e6)
    for k, row in enumerate(case.z):
        found = zol_search(case.model, case.evidence, row.expand(2, -1), unshaped)
        torch.testing.assert_close(found.estimate[0], case.start_values()[k], **EXACT)


def test_frozen_critic(case: Case) -> None:
    critic, z = FrozenCritic.of(case.model, case.evidence), case.z[:2]
    obs = EVERY.expand(2, STATES, STATES)
    got = critic.value(obs, z.unsqueeze(1), case.model.act(obs, z.unsqueeze(1)), REWARDS).squeeze(0)
    torch.testing.assert_close(got, case.values()[[0, 1], [0, 1]], **EXACT)
    torch.testing.assert_close(critic.predicted_reward(obs), REWARDS, **EXACT)


@pytest.mark.parametrize("horizon", [1, 4])
def test_lookahead_of_lola(case: Case, horizon: int) -> None:
    practice = TaskEnvironments(case.world, case.tasks, case.evidence, seeded(7))
    begin = torch.arange(5.0, dtype=torch.float64).reshape(1, 5, 1).expand(2, 5, 1)  # sample k starts in k
    practice.draw(1)
    critic = FrozenCritic.of(case.model, case.evidence)
    z = case.z.expand(2, 5, STATES)
    got = lookahead_returns(critic, practice, begin, z, LoLAConfig(horizon=horizon))
    k = torch.arange(5)
    torch.testing.assert_close(got, case.values()[k, :, k].mT, rtol=1e-6, atol=1e-6)


def test_gpi_takes_the_best_candidate(case: Case) -> None:
    rule = gpi_policy(case.model, case.evidence, case.z.expand(2, -1, -1))
    states = EVERY.expand(2, STATES, STATES)
    best = case.values().argmax(0)  # [T, S]
    policy = case.model.policy(case.z)  # [K, S, A]
    torch.testing.assert_close(rule(states), policy[best, torch.arange(STATES)], **EXACT)


def test_the_ranking_pipeline(case: Case) -> None:
    """Pool, estimates and judgement, as ``zol bench ranking`` runs them."""
    problem = Problem(
        case.model,
        case.evidence,
        "chain",
        dict(zip(case.evidence.tasks, case.tasks, strict=True)),
        case.world.layout,
        dynamics=case.learned,
    )
    latents = case.z.expand(2, -1, -1)
    found = ranking.estimates(problem.value_problem("ranking rollouts"), latents)
    assert set(found) == {name for name in ESTIMATORS if not ESTIMATORS[name].learns}
    truth = case.start_values().mT
    for name in ("ratio", "value"):
        torch.testing.assert_close(found[name].mean, truth, **EXACT)
    for line in ranking.judge(problem, found, truth):
        if line.estimator in ("ratio", "value"):
            assert (line.bias, line.error, line.regret) == pytest.approx((0, 0, 0), abs=1e-7)
            assert line.spearman == pytest.approx(1)


def health_sample(copies: int = 20) -> HealthSample:
    """Every state with every action, so that averages over the sample are exact expectations."""
    pairs = torch.cartesian_prod(torch.arange(STATES), torch.arange(2)).repeat(copies, 1)
    state, action = pairs.unbind(-1)
    following = chain(STATES, slip=0.0).transition[state, action]
    batch = Batch(EVERY[state], EVERY[:2, :2][action], following, torch.zeros(len(state), dtype=torch.bool))
    directions = torch.randn(len(state), STATES, generator=seeded(), dtype=torch.float64)
    return HealthSample(batch, EVERY[:STARTS], directions)


class Wrong(ExactFB):
    """F with too much mass."""

    excess = 0.0

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        return (1 + self.excess) * super().forward(obs, z, action)


def healthy_model(measure: Measure, **settings: float) -> Wrong:
    sample = health_sample()
    mdp = FiniteMDP(chain(STATES, slip=0.0).transition, EVERY[:STARTS].mean(0), GAMMA)
    model = Wrong(mdp, sample.batch.next_obs.mean(0), measure=measure, generator=seeded(1))
    for name, value in settings.items():
        setattr(model, name, value)
    return model


@pytest.mark.parametrize(("measure", "centred"), MODELS, ids=str)
def test_an_exact_model_is_healthy(measure: Measure, centred: bool) -> None:
    sample, model = health_sample(), healthy_model(measure)
    model.features_centred &= centred
    found = {name: float(value) for name, value in check_health(model, sample).items()}
    small = 2 * STATES / len(sample.batch)  # pairs i ≠ j of a finite sample leave out the diagonal
    assert found["ratio_mean"] == pytest.approx(1, abs=1e-8)
    assert found["ratio_error"] == pytest.approx(0, abs=1e-8)
    assert found["bellman_residual"] == pytest.approx(0, abs=1e-8)
    assert found["bellman_mass"] == pytest.approx(1, abs=small)
    # Q of π_z and of the data's actions for the reward Bᵀz, by linear algebra.
    batch = sample.batch
    B = model.backward(batch.next_obs)
    uniform = torch.arange(len(B)).unsqueeze(-1) % 2 == 0
    z = model.project(torch.where(uniform, sample.directions, B.roll(1, dims=0)))
    policy, reward = model.policy(z), z @ model.features().mT  # [N, S, A], [N, S]
    Q = torch.einsum("nsat,nt->nsa", model.mdp.successor(policy), reward)
    of_actor = torch.einsum("ns,nsa,nsa->n", batch.obs, policy, Q)
    of_data = torch.einsum("ns,na,nsa->n", batch.obs, batch.action, Q)
    assert found["Q_actor"] == pytest.approx(float(of_actor.mean()), abs=1e-7)
    assert found["Q_gain"] == pytest.approx(float((of_actor - of_data).mean()), abs=1e-7)


@pytest.mark.parametrize("measure", CONVENTIONS, ids=str)
def test_too_much_mass_shows_by_as_much_in_every_convention(measure: Measure) -> None:
    """F 1.5 times too large: w − o is, so a centred model's mass stays right and its residual does not."""
    sample = health_sample()
    right = check_health(healthy_model(measure), sample)
    found = check_health(healthy_model(measure, excess=0.5), sample)
    assert float(found["bellman_residual"]) > 0.05
    if measure.offset == 0:
        assert float(found["ratio_mean"]) == pytest.approx(1.5, abs=1e-8)
        assert float(found["bellman_mass"]) == pytest.approx(1.5 * float(right["bellman_mass"]))
    else:
        assert float(found["ratio_mean"]) == pytest.approx(1, abs=1e-8)


class Lying:
    """A model of the default convention that says it has another."""

    def __init__(self, model: ExactFB, lie: Measure) -> None:
        self.model, self.measure = model, lie

    def __getattr__(self, name: str) -> object:
        return getattr(self.model, name)


@pytest.mark.parametrize("lie", CONVENTIONS[1:], ids=str)
def test_reading_a_model_under_a_wrong_convention_is_noticed(lie: Measure) -> None:
    """The checks above are able to fail."""
    found = check_health(Lying(healthy_model(Measure()), lie), health_sample())  # type: ignore[arg-type]
    assert abs(float(found["ratio_mean"]) - 1) > 0.1 or float(found["bellman_residual"]) > 0.1


def test_nobody_else_reads_the_convention() -> None:
    """Other files pass ``model.measure`` along at most; exact.py builds models of each convention."""
    source = Path(zol.__file__).parent
    reads = re.compile(r"\.measure\.(normalised|begins|offset|scale)\b")
    readers = {
        path.relative_to(source).as_posix() for path in source.rglob("*.py") if reads.search(path.read_text())
    }
    assert readers == {"measure.py", "testing/exact.py"}
