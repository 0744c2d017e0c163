"""A walk on a ring of states, and the exact successor measure of the behaviour that made it."""

import numpy as np
import torch

from zol.data import Dataset

STATES, GAMMA = 4, 0.7


def ring(steps: int, seed: int, chance: float = 0.8) -> Dataset:
    """One long walk on a ring: action 0 goes on, action 1 stays; β goes on with this chance."""
    rng = np.random.default_rng(seed)
    action = (rng.random(steps) > chance).astype(int)
    state = np.concatenate([[0], np.cumsum(1 - action)]) % STATES
    eye = np.eye(STATES, dtype=np.float32)
    return Dataset.from_arrays(
        eye[state[:-1]],
        np.eye(2, dtype=np.float32)[action],
        eye[state[1:]],
        truncated=np.arange(steps) == steps - 1,
    )


def exact_measure(chance: float = 0.8) -> torch.Tensor:
    """M(s, a, s') = Σ_t γ^t Pr(s_{t+1} = s' | s, a, β), ``[S, 2, S]``."""
    step = torch.stack([torch.eye(STATES).roll(1, 1), torch.eye(STATES)], 1)  # [S, A, S]
    P = chance * step[:, 0] + (1 - chance) * step[:, 1]
    return step @ torch.linalg.inv(torch.eye(STATES) - GAMMA * P)
