"""A corridor whose transitions are known exactly, as a sample and as linear algebra."""

import itertools

import torch
from torch import Tensor

from zol.evidence import Evidence
from zol.models.base import Measure
from zol.value.linear import FOLDS
from zol.worlds.tabular import FiniteMDP, chain

STATES, GAMMA = 6, 0.8
EVERY = torch.eye(STATES, dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


REWARDS = 3 * torch.rand(2, STATES, generator=seeded(3), dtype=torch.float64)


def corridor(terminal: bool) -> FiniteMDP:
    walk = chain(STATES, discount=GAMMA, slip=0.25)
    over = torch.zeros(STATES, dtype=torch.bool)
    over[-1] = terminal
    return FiniteMDP(walk.transition, torch.tensor([2, 1, 1, 0, 0, 0]).double() / 4, GAMMA, over)


def exact_sample(mdp: FiniteMDP) -> Evidence:
    """Transitions whose frequencies are the probabilities, in every fold; 'left' is taken twice as often."""
    assert mdp.terminal is not None
    rows = []
    for s, a in itertools.product(range(STATES), range(2)):
        if mdp.terminal[s]:
            continue
        times = (4 * mdp.transition[s, a]).round().long() * (2 - a)
        rows += [(s, a, t) for t in range(STATES) for _ in range(int(times[t]))]
    here, did, there = torch.tensor(rows).repeat_interleave(FOLDS, dim=0).unbind(-1)
    starts = EVERY[[0, 0, 1, 2]]
    return Evidence(
        ("a", "b"),
        EVERY[there],
        REWARDS[:, there],
        starts,
        "",
        EVERY[here],
        EVERY[:2, :2][did],
        mdp.terminal[there],
    )


class Table:
    """A model whose F is any table of states and actions, so that a ratio can be put into its span."""

    obs_dim, action_dim, discount, measure = STATES, 2, GAMMA, Measure()

    def __init__(self, columns: Tensor, policy: Tensor) -> None:
        self.columns, self.policy, self.z_dim = columns, policy, columns.shape[-1]  # [S, A, d], [S, A]

    def backward(self, obs: Tensor) -> Tensor:
        return obs @ torch.randn(STATES, self.z_dim, generator=seeded(6), dtype=torch.float64)

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        row = torch.einsum("...s,...a,sad->...d", obs, action, self.columns)
        return row.expand(1, *z.shape[:-2], *row.shape[-2:])

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        return (obs @ self.policy).expand(*z.shape[:-2], *obs.shape[:-1], 2)

    def project(self, z: Tensor) -> Tensor:
        return z


def occupancy(mdp: FiniteMDP, policy: Tensor) -> Tensor:
    """d^π(s, a), ``[S, A]``, by summing over time."""
    position, total = mdp.start.clone(), torch.zeros(STATES, 2, dtype=torch.float64)
    for t in range(400):
        pairs = mdp.continuing(position.unsqueeze(-1) * policy)
        total += (1 - GAMMA) * GAMMA**t * pairs
        position = torch.einsum("sa,sat->t", pairs, mdp.transition)
    return total
