"""Stretches of several steps: against a loop over episodes, and against the closed form of a chain."""

from typing import Any

import numpy as np
import torch
from present import present

from zol.data import Dataset
from zol.data.resident import Resident, Streamed
from zol.data.sampling import look_ahead

GAMMA, N = 0.8, 4


def episodes() -> Dataset:
    """Six episodes of other lengths, two of them terminated; observations number the rows."""
    lengths = [7, 1, 3, 12, 4, 2]
    parts: dict[str, list[Any]] = {"obs": [], "action": [], "next_obs": [], "end": []}
    row = 0
    for number, length in enumerate(lengths):
        for step in range(length):
            parts["obs"].append([row])
            parts["next_obs"].append([row + 1])
            parts["action"].append([0.05 * step])
            parts["end"].append(step == length - 1 and number in (1, 3))
            row += 1
        row += 1
    terminated = np.array(parts["end"])
    cut = np.zeros(len(terminated), dtype=bool)
    cut[np.cumsum(lengths) - 1] = True
    return Dataset.from_arrays(
        parts["obs"], parts["action"], parts["next_obs"], terminated, cut & ~terminated
    )


def test_stretches_by_a_loop() -> None:
    data, device = episodes(), torch.device("cpu")
    steps, chance = torch.arange(len(data)), torch.rand(len(data), generator=torch.Generator().manual_seed(0))
    found = look_ahead(Streamed(data, device), steps, N, GAMMA, chance)
    resident = look_ahead(Resident(data, device), steps, N, GAMMA, chance)
    step = 0
    for number in range(data.episodes):
        rows = data.episode(number)
        total = int(data.lengths[number])
        for t in range(total):
            n = min(N, total - t)
            weights = np.cumsum(GAMMA ** np.arange(n))
            k = int(np.searchsorted(weights / weights[-1], float(chance[step]), side="right"))
            assert int(present(found.length)[step]) == n
            assert float(found.obs[step]) == rows["obs"][t]
            assert float(found.action[step]) == np.float32(rows["action"][t][0])
            assert float(found.next_obs[step]) == rows["obs"][t + n]
            assert float(present(found.goal)[step]) == rows["obs"][t + 1 + k]
            assert bool(found.terminated[step]) == bool(rows["terminated"][t + n - 1])
            step += 1
    assert step == len(data)
    for name in ("obs", "action", "next_obs", "terminated", "goal", "length", "first_obs"):
        assert torch.equal(getattr(found, name), getattr(resident, name)), name
    single, plain = found.single(), data.transitions()
    assert torch.equal(single.next_obs, plain.next_obs)
    assert torch.equal(single.terminated, plain.terminated)
    assert single.length is None


def test_stretches_that_go_on_end_before_a_cut() -> None:
    data, device = episodes(), torch.device("cpu")
    steps = torch.arange(len(data))
    found = look_ahead(
        Streamed(data, device), steps, N, GAMMA, torch.full((len(data),), 0.999), continued=True
    )
    expected = []
    for length, ended in zip(data.lengths.tolist(), (0, 1, 0, 1, 0, 0), strict=True):
        for t in range(length):
            reach = length - t if ended else max(1, length - t - 1)
            expected.append(min(N, reach))
    assert present(found.length).tolist() == expected
    assert torch.equal(
        present(found.goal), found.next_obs
    )  # the chance above draws the last of every stretch


def test_stretches_of_one_step_are_transitions() -> None:
    data = episodes()
    steps = torch.arange(len(data))
    source = Streamed(data, torch.device("cpu"))
    found, plain = look_ahead(source, steps, 1, GAMMA, torch.rand(len(data))), source.take(steps)
    assert torch.equal(present(found.goal), plain.next_obs)
    assert torch.equal(found.next_obs, plain.next_obs)
    assert torch.equal(found.terminated, plain.terminated)


def test_their_measure_is_the_successor_measure() -> None:
    """On a chain, E[c δ(goal) + γⁿ M(s_{t+n}, ·)] = M(s_t, ·) with M = Σ_t γ^t P^{t+1}, whatever n is."""
    g = np.random.default_rng(0)
    P = g.dirichlet(np.ones(4), size=4)
    M = P @ np.linalg.inv(np.eye(4) - GAMMA * P)
    path = [0]
    for u in g.random(60_000):
        path.append(int(np.searchsorted(np.cumsum(P[path[-1]]), u)))
    states = np.array(path, dtype=np.float32)[:, None]
    data = Dataset.from_arrays(states[:-1], np.zeros((len(path) - 1, 1)), states[1:])
    steps = torch.arange(len(data))
    chance = torch.rand(len(data), generator=torch.Generator().manual_seed(1))
    found = look_ahead(Streamed(data, torch.device("cpu")), steps, N, GAMMA, chance)
    after = GAMMA ** present(found.length).double().numpy()
    goals, last = present(found.goal).long().flatten().numpy(), found.next_obs.long().flatten().numpy()
    samples = ((1 - after) / (1 - GAMMA))[:, None] * np.eye(4)[goals] + after[:, None] * M[last]
    start = found.obs.long().flatten().numpy()
    for s in range(4):
        own = samples[start == s]
        error = np.abs(own.mean(0) - M[s])
        # Neighbouring stretches overlap, so their error is up to √N times that of independent ones.
        assert (error < 4 * np.sqrt(N) * own.std(0) / np.sqrt(len(own))).all()
        assert error.max() < 0.05
