"""The choice that judges must agree on: its rule case by case, and on a chain where critics are exact."""

from dataclasses import replace

import pytest
import torch
from known_transitions import GAMMA, REWARDS, STATES, corridor, exact_sample, seeded
from torch import Tensor

from zol.adapt import Problem, solve
from zol.adapt.agreed import AgreedConfig, decided
from zol.fields import Layout, States
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.value.task_critic import TaskCriticSettings

EXACT = AgreedConfig(critic=TaskCriticSettings(layers=0, horizons=20.0), preference=0.0, critic_gain=0.0)


@pytest.mark.parametrize(
    ("trusted", "proposed", "critic", "lstd", "chosen"),
    [
        (True, True, [0, 1, 5, 5], [0, -1, 5, 5], 1),  # rehearsal, seconded by the critic
        (True, True, [0, -1, 5, 5], [0, 1, 5, 5], 1),  # or by LSTD-Q
        (True, True, [0, -1, 5, 5], [0, -1, 5, 5], 0),  # but not alone
        (True, False, [0, 1, 5, 5], [0, 1, 5, 5], 0),  # rehearsal sees nothing, and may judge
        (False, True, [0, 1, 5, 4], [0, 1, 3, 4], 3),  # it may not: the largest smaller gain
        (False, False, [0, 9, 5, 4], [0, 9, 0.4, 0.4], 0),  # of which one is within its error
        (False, False, [0, 0, 0.6, 4], [0, 0, 0.9, -4], 2),
        (False, False, [0, 0, -1, -2], [0, 0, 3, 3], 0),
    ],
)
def test_who_decides(
    trusted: bool, proposed: bool, critic: list[float], lstd: list[float], chosen: int
) -> None:
    def judgement(gains: list[float]) -> tuple[Tensor, Tensor]:
        return torch.tensor([gains]), torch.full((1, 4), 0.5)

    flags = torch.tensor([trusted]), torch.tensor([proposed])
    least = torch.tensor([0.1])
    assert decided(*flags, judgement(critic), judgement(lstd), least, 1.0).tolist() == [chosen]
    assert decided(*flags, judgement(critic), judgement(lstd), least + 10, 1.0).tolist() in ([0], [1])


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A chain whose sample is uneven, so that plain prompts are not the best; there is no learned world."""
    mdp = corridor(False)
    model = ExactFB(mdp, torch.full((STATES,), 1 / STATES, dtype=torch.float64), generator=seeded(9))

    def reward(k: int) -> Task:
        def of(s: States) -> Tensor:
            return s["obs"].double() @ REWARDS[k]

        return Task("ab"[k], of, "a row of a table")

    tasks = {"ab"[k]: reward(k) for k in range(2)}
    return Problem(model, exact_sample(mdp), "", tasks, Layout.plain(STATES))


def truth(problem: Problem, z: Tensor) -> Tensor:
    """What latents ``[T, d]`` earn on their own tasks, in closed form."""
    assert isinstance(problem.model, ExactFB)
    assert problem.model.discount == GAMMA
    values = [problem.model.mdp.value(policy, REWARDS) for policy in problem.model.policy(z)]
    return torch.stack(values).diagonal()


def test_exact_judges_find_a_better_latent(problem: Problem) -> None:
    found = solve("agreed", problem, EXACT).found
    gain = truth(problem, found.z[0]) - truth(problem, found.start)
    torch.testing.assert_close(found.diagnostics["critic_gain"][0], gain, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.diagnostics["lstd_gain"][0], gain, rtol=1e-6, atol=1e-6)
    assert bool((gain >= 0).all())
    assert float(gain.max()) > 0.001
    assert found.diagnostics["changed"][0].tolist() == (gain > 0).double().tolist()


def test_the_plain_latent_stays_where_nothing_is_worth_it(problem: Problem) -> None:
    found = solve("agreed", problem, EXACT.updated(critic_gain=1.0)).found
    assert torch.equal(found.z, solve("fb", problem).found.z)  # to the last bit
    assert found.diagnostics["changed"].tolist() == [[0.0, 0.0]]


def test_without_transitions_there_is_nobody_to_agree(problem: Problem) -> None:
    bare = replace(problem, evidence=replace(problem.evidence, before=None), prompt="ridge")
    found = solve("agreed", bare, EXACT).found
    torch.testing.assert_close(found.z[0], bare.model.project(bare.start))  # the model's own prompt
    assert "critic_gain" not in found.diagnostics
