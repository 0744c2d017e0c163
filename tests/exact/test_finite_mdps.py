"""The finite worlds themselves: the oracles of everything else had better be right."""

import pytest
import torch
from torch.nn import functional

from zol.worlds.tabular import ROOMS, FiniteMDP, chain, four_rooms, random_mdp


@pytest.mark.parametrize(
    "mdp", [chain(), four_rooms(slip=0.2).mdp, random_mdp(7, 3, torch.Generator().manual_seed(0))]
)
def test_probabilities_sum_to_one(mdp: FiniteMDP) -> None:
    total = mdp.transition.sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert bool((mdp.transition >= 0).all())
    assert float(mdp.start.sum()) == pytest.approx(1.0)


def test_four_rooms_has_104_cells_and_four_doors() -> None:
    assert four_rooms().mdp.states == sum(row.count(" ") for row in ROOMS) == 104
    moves = four_rooms().mdp.transition.sum(1) > 0
    reached = torch.linalg.matrix_power(moves.double(), 40)[0] > 0
    assert bool(reached.all())  # every cell can be reached from every other


def test_optimal_value_beats_every_deterministic_policy() -> None:
    """The slow obvious optimum: try all 2^4 policies."""
    mdp = random_mdp(4, 2, torch.Generator().manual_seed(1))
    reward = torch.rand(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    policies = torch.cartesian_prod(*[torch.arange(2)] * 4)  # [16, 4]
    values = mdp.value(functional.one_hot(policies, 2).double(), reward)
    assert float(mdp.optimal_value(reward)) == pytest.approx(float(values.max()), rel=1e-9)


def test_optimal_return_in_a_corridor_by_hand() -> None:
    """Without slips, the right end of a corridor of n cells is reached in n − 1 steps and then held."""
    n, gamma = 6, 0.9
    mdp = chain(n, gamma, slip=0.0)
    goal = functional.one_hot(torch.tensor(n - 1), n).double()
    # Arrival at step n − 1 pays at time index n − 2, and at every later one.
    assert float(mdp.optimal_value(goal)) == pytest.approx(gamma ** (n - 2))


def test_optimal_policies_come_in_batches() -> None:
    mdp = chain()
    rewards = torch.eye(8, dtype=torch.float64)
    together = mdp.optimal_value(rewards)
    alone = torch.stack([mdp.optimal_value(r) for r in rewards])
    torch.testing.assert_close(together, alone)


def test_slips_make_goals_harder() -> None:
    goals = torch.eye(104, dtype=torch.float64)[::10]
    sure, slippery = (four_rooms(slip=s).mdp.optimal_value(goals) for s in (0.0, 0.3))
    assert bool((slippery < sure).all())
