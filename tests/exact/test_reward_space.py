"""Candidates from reward space are the prompts of their formulas, state by state."""

import pytest
import torch
from torch import Tensor

from zol.adapt.reward_space import balance_weights, cluster, reward_space_latents, top_share
from zol.evidence import Evidence
from zol.testing.exact import ExactFB
from zol.worlds.tabular import chain

STATES = 6
EVERY = torch.eye(STATES, dtype=torch.float64)
REWARD = torch.tensor([0.0, 3.0, 1.0, 0.0, 2.0, 5.0], dtype=torch.float64)
TIMES = [40, 1, 8, 100, 50, 1]  # how often the sample holds each state


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def model() -> ExactFB:
    density = torch.full((STATES,), 1 / STATES, dtype=torch.float64)
    return ExactFB(chain(STATES, discount=0.8, slip=0.2), density, generator=seeded(1))


def sample(*rewards: Tensor) -> Evidence:
    rows = torch.arange(STATES).repeat_interleave(torch.tensor(TIMES))
    names = tuple(f"task {k}" for k in range(len(rewards)))
    return Evidence(names, EVERY[rows], torch.stack([r[rows] for r in rewards]), EVERY[:1])


def test_every_candidate_is_the_prompt_of_its_formula(model: ExactFB) -> None:
    evidence = sample(REWARD, 7 - REWARD)
    found = reward_space_latents(model, evidence, seeded())
    assert found.shape == (2, 8, STATES)
    for t, reward in enumerate((REWARD, 7 - REWARD)):
        relative = (reward - reward.min()) / 5
        expected = []
        for share in (0.01, 0.05, 0.1):  # of 200 states the best 2, 10 and 20, and all that tie with the last
            order = sorted((float(relative[s]) for s in range(STATES) for _ in range(TIMES[s])), reverse=True)
            least = order[round(200 * share) - 1]
            expected.append(
                [float(r) * (float(r) >= least) * n for r, n in zip(relative, TIMES, strict=True)]
            )
        for temperature in (2.0, 5.0, 20.0):
            expected.append((torch.tensor(TIMES) * (temperature * relative).exp() * relative).tolist())
        for alpha in (0.5, 1.0):
            expected.append([float(r) * n ** (1 - alpha) for r, n in zip(reward, TIMES, strict=True)])
        for z, g in zip(found[t], expected, strict=True):
            wanted = model.project(torch.tensor(g, dtype=torch.float64) @ model.features())
            torch.testing.assert_close(z, wanted)


def test_balanced_prompts_do_not_see_how_often_a_state_was_visited(model: ExactFB) -> None:
    evidence, once = sample(REWARD), Evidence(("task 0",), EVERY, REWARD.unsqueeze(0), EVERY[:1])
    balanced = reward_space_latents(model, evidence, seeded())[0, -1]
    torch.testing.assert_close(balanced, once.prompt(model)[0])
    assert not torch.allclose(evidence.prompt(model)[0], balanced, atol=0.1)


def test_the_unit_and_the_zero_of_a_reward_do_not_matter_where_states_are_ranked(model: ExactFB) -> None:
    plain, moved = (reward_space_latents(model, sample(r), seeded())[0] for r in (REWARD, 8 * REWARD - 100))
    torch.testing.assert_close(plain[:6], moved[:6])
    small, large = (reward_space_latents(model, sample(r), seeded())[0] for r in (REWARD, 1e6 * REWARD))
    torch.testing.assert_close(small, large)


def test_a_reward_that_is_the_same_everywhere_has_the_plain_prompt(model: ExactFB) -> None:
    evidence = sample(REWARD, torch.full((STATES,), -2.0, dtype=torch.float64))
    found = reward_space_latents(model, evidence, seeded())
    torch.testing.assert_close(found[1], evidence.prompt(model)[1].expand(8, -1))


def test_the_best_share_holds_at_least_one_state_and_all_ties() -> None:
    rewards = torch.tensor([[1.0, 2.0, 2.0, 0.5]])
    assert top_share(rewards, 1e-6).tolist() == [[0.0, 2.0, 2.0, 0.0]]
    assert top_share(rewards, 0.75).tolist() == [[1.0, 2.0, 2.0, 0.0]]


def test_clusters_are_those_of_separate_clouds() -> None:
    where = torch.arange(3).repeat_interleave(torch.tensor([50, 10, 40]))
    points = 10 * torch.eye(3)[where] + 0.1 * torch.randn(100, 3, generator=seeded(3))
    member = cluster(points, 20, seeded(4))
    for a, b in ((0, 1), (0, 2), (1, 2)):  # no cluster has points of two clouds
        assert not set(member[where == a].tolist()) & set(member[where == b].tolist())
    weights = balance_weights(EVERY[where % STATES], seeded(5))
    torch.testing.assert_close(weights.mean(-1), torch.ones(2, dtype=torch.float64))
    totals = [float(weights[1, where == k].sum()) for k in range(3)]
    assert totals == pytest.approx([100 / 3] * 3)
