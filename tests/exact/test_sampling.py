"""Batches as learners declare them: every column against a loop over episodes, and in distribution."""

from typing import Any

import numpy as np
import pytest
import torch
from present import present

from zol.common import parallel
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec, Dataset, Sampler
from zol.data.resident import Resident, Streamed
from zol.data.sampling import future_states, look_ahead, with_next_action

GAMMA = 0.7
CPU = torch.device("cpu")
LENGTHS = [7, 1, 3, 12, 4, 2]
ENDED = [False, True, False, True, False, False]  # episodes that reached a terminal state
EVERYTHING = BatchSpec(
    stretch=4, discount=GAMMA, future=GAMMA, next_action=True, path=2, physics=True, expert_window=3
)


def episodes(lengths: list[int] = LENGTHS, first_row: int = 0) -> Dataset:
    """Episodes whose observations number the rows; physics is ten times as much, actions tell the step."""
    obs, action, next_obs, ends, cuts = [], [], [], [], []
    row = first_row
    for number, length in enumerate(lengths):
        for step in range(length):
            obs.append([row])
            next_obs.append([row + 1])
            action.append([0.05 * step + 0.01])
            ends.append(step == length - 1 and ENDED[number % len(ENDED)])
            cuts.append(step == length - 1 and not ENDED[number % len(ENDED)])
            row += 1
        row += 1
    physics = {"physics": 10.0 * np.array(obs), "next_physics": 10.0 * np.array(next_obs)}
    return Dataset.from_arrays(obs, action, next_obs, ends, cuts, **dict[str, Any](physics))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def place_of(data: Dataset, step: int) -> tuple[dict[str, np.ndarray], int, int]:
    """The rows of the episode that a step belongs to, the step's number in it, and the episode's length."""
    for number, length in enumerate(data.lengths.tolist()):
        if step < length:
            return data.episode(number), step, length
        step -= length
    raise AssertionError


def drawn(weights: list[float], u: float) -> int:
    """The first k whose cumulated weight exceeds u."""
    return int(np.searchsorted(np.cumsum(weights) / np.sum(weights), u, side="right"))


@pytest.mark.parametrize("stretch", [1, 4])
def test_every_column_by_a_loop(stretch: int) -> None:
    """The generator is drawn from in a fixed order: rows, goals of stretches, future states, windows."""
    data, expert, n = episodes(), episodes([5, 2, 3], first_row=1000), 300
    spec = BatchSpec(stretch, GAMMA, future=GAMMA, next_action=True, physics=True, expert_window=3)
    batch = Sampler(data, CPU, spec, expert).draw(spec, n, seeded(3))
    g = seeded(3)
    steps = torch.randint(len(data), (n,), generator=g)
    goals = torch.rand(n, generator=g).tolist() if stretch > 1 else [0.0] * n
    futures = torch.rand(n, generator=g).tolist()
    windows = torch.randint(4, (n // 3,), generator=g)
    for i, step in enumerate(steps.tolist()):
        rows, t, length = place_of(data, step)
        reach = min(stretch, length - t)
        assert float(batch.obs[i]) == rows["obs"][t]
        assert float(present(batch.physics)[i]) == rows["physics"][t]
        assert float(batch.action[i]) == rows["action"][t]
        assert float(batch.next_obs[i]) == rows["obs"][t + reach]
        assert float(present(batch.next_physics)[i]) == rows["physics"][t + reach]
        assert bool(batch.terminated[i]) == bool(rows["terminated"][t + reach - 1])
        if stretch > 1:
            assert int(present(batch.length)[i]) == reach
            k = drawn([GAMMA**k for k in range(reach)], goals[i])
            assert float(present(batch.goal)[i]) == rows["obs"][t + k + 1]
        endless = [(1 - GAMMA) * GAMMA**k for k in range(200)]
        k = 1 + min(drawn(endless, futures[i]), length - t - 1)
        assert float(present(batch.future_obs)[i]) == rows["obs"][t + k]
        assert bool(present(batch.last)[i]) == (t + reach == length)
        expected = 0.0 if t + reach == length else rows["action"][t + reach]
        assert float(present(batch.next_action)[i]) == expected
    # Episodes of 5, 2 and 3 steps have 3, 0 and 1 windows of 3, which begin in rows 0, 1, 2 and 6 + 3 = 9.
    begins = torch.tensor([0, 1, 2, 9])[windows] + 1000
    assert torch.equal(present(batch.expert_obs).squeeze(-1), begins.unsqueeze(1) + torch.arange(3.0))
    assert torch.equal(present(batch.expert_next_obs), present(batch.expert_obs) + 1)
    if stretch == 1:
        assert batch.goal is None
        assert batch.length is None


def test_a_plain_batch_is_a_sample_of_the_data() -> None:
    data = episodes()
    batch = Sampler(data, CPU, BatchSpec()).draw(BatchSpec(), 50, seeded(1))
    plain = data.sample(50, seeded(1), physics=False)
    for name in ("obs", "action", "next_obs", "terminated"):
        assert torch.equal(getattr(batch, name), getattr(plain, name))
    for name in ("physics", "goal", "length", "future_obs", "next_action", "last", "expert_obs"):
        assert getattr(batch, name) is None


def test_columns_on_the_device_give_the_same_batches() -> None:
    data, steps = episodes(), torch.arange(sum(LENGTHS))
    chance = torch.rand(len(steps), generator=seeded())
    found = []
    for source in (Streamed(data, CPU), Resident(data, CPU)):
        ahead = with_next_action(source, steps, look_ahead(source, steps, 4, GAMMA, chance))
        found.append((ahead, future_states(source, steps, GAMMA, chance)))
    (streamed, later), (resident, later_too) = found
    assert torch.equal(later, later_too)
    for name in ("obs", "next_obs", "terminated", "goal", "length", "next_action", "last"):
        assert torch.equal(getattr(streamed, name), getattr(resident, name)), name


def test_future_states_are_geometric_up_to_the_end() -> None:
    """Pr(k) = (1 − γ) γ^{k−1}, and what would lie beyond the last state falls on it."""
    data, n, begin = episodes([6]), 40_000, 1
    steps = torch.full((n,), begin)
    found = future_states(Streamed(data, CPU), steps, GAMMA, torch.rand(n, generator=seeded())).flatten()
    left = 6 - begin
    exact = [(1 - GAMMA) * GAMMA ** (k - 1) for k in range(1, left)] + [GAMMA ** (left - 1)]
    assert sum(exact) == pytest.approx(1)
    for k, p in enumerate(exact, start=1):
        share = float((found == begin + k).double().mean())
        assert share == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / n))


def test_the_ends_of_chance_stay_inside_the_episode() -> None:
    data = episodes()
    steps = torch.arange(len(data))
    for u in (0.0, 1 - 2**-24, float(np.nextafter(1.0, 0.0))):
        chance = torch.full((len(steps),), u, dtype=torch.float64)
        ahead = look_ahead(Streamed(data, CPU), steps, 4, GAMMA, chance)
        later = future_states(Streamed(data, CPU), steps, GAMMA, chance)
        for i in range(len(steps)):
            rows, t, length = place_of(data, i)
            assert float(later[i]) == rows["obs"][t + 1 if u == 0 else length]
            assert float(present(ahead.goal)[i]) == rows["obs"][t + 1 if u == 0 else t + min(4, length - t)]


def test_rows_and_windows_are_drawn_uniformly() -> None:
    data, expert = episodes(), episodes([5, 2, 3])
    spec, n = BatchSpec(expert_window=2), 60_000
    batch = Sampler(data, CPU, spec, expert).draw(spec, n, seeded())
    counts = np.bincount(batch.obs.flatten().long().numpy(), minlength=len(data) + len(LENGTHS))
    final = np.cumsum(np.array(LENGTHS) + 1) - 1
    assert (counts[final] == 0).all()
    for values in (
        np.delete(counts, final),
        np.unique(present(batch.expert_obs)[:, 0], return_counts=True)[1],
    ):
        p = 1 / len(values)
        expected = values.sum() * p
        assert np.abs(values - expected).max() < 4.5 * np.sqrt(expected * (1 - p))
    assert set(present(batch.expert_obs)[:, 0].flatten().tolist()) == {
        0,
        1,
        2,
        3,
        6,
        9,
        10,
    }  # 4 + 1 + 2 windows


def joined(parts: list[Batch], name: str) -> torch.Tensor:
    return torch.cat([getattr(part, name) for part in parts])


def test_processes_draw_one_batch_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data, expert = episodes(), episodes([5, 2, 3])
    sampler = Sampler(data, CPU, EVERYTHING, expert)
    generator = seeded(9)
    alone, state = sampler.draw(EVERYTHING, 24, generator), generator.get_state()
    monkeypatch.setattr(parallel, "size", lambda: 2)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        generator = seeded(9)
        parts.append(sampler.draw(EVERYTHING, 24, generator))
        assert torch.equal(generator.get_state(), state)  # generators of all processes stay in step
    assert len(parts[0]) == len(parts[1]) == 12
    drawn = set(Batch.__dataclass_fields__) - {"z"}  # latents come from those who act
    for name in drawn:
        assert torch.equal(joined(parts, name), getattr(alone, name)), name


class TestRefusals:
    def test_specs(self) -> None:
        with pytest.raises(ConfigError, match=r"need a discount in \(0, 1\), got 0.0"):
            BatchSpec(stretch=3)
        with pytest.raises(ConfigError, match=r"future states need a discount in \(0, 1\), or 0 .* got 1.0"):
            BatchSpec(future=1.0)
        with pytest.raises(ConfigError, match=r"need a discount in \(0, 1\), got 1.0"):
            BatchSpec(stretch=3, discount=1.0)
        with pytest.raises(ConfigError, match="stretch=0"):
            BatchSpec(stretch=0)
        with pytest.raises(ConfigError, match="expert_window=-1"):
            BatchSpec(expert_window=-1)

    def test_demonstrations(self) -> None:
        data, wants = episodes(), BatchSpec(expert_window=3)
        with pytest.raises(DataError, match="learns from demonstrations, and none were given"):
            Sampler(data, CPU, wants)
        with pytest.raises(DataError, match="no episode has 9 steps in a row: the longest has 5"):
            Sampler(data, CPU, BatchSpec(expert_window=9), episodes([5, 2]))
        wide = Dataset.from_arrays(np.zeros((4, 2)), np.zeros((4, 1)), np.zeros((4, 2)))
        with pytest.raises(DataError, match="demonstrations have 2 observation columns, the data 1"):
            Sampler(data, CPU, wants, wide)

    def test_more_than_was_announced(self) -> None:
        sampler = Sampler(episodes(), CPU, BatchSpec(expert_window=2), episodes([5, 2, 3]))
        assert sampler.draw(BatchSpec(), 4, seeded()).expert_obs is None  # less is welcome
        for more in (BatchSpec(expert_window=4), BatchSpec(physics=True)):
            with pytest.raises(DataError, match="have to be announced"):
                sampler.draw(more, 4, seeded())

    def test_no_transitions(self) -> None:
        empty = episodes().first(0)
        with pytest.raises(DataError, match="no transitions to draw from"):
            Sampler(empty, CPU, BatchSpec())


def test_paths_are_the_steps_that_follow() -> None:
    """Episodes of 1, 2 and 5 steps: a path is cut where they end, and its first step is the batch's own."""
    lengths = [1, 2, 5]
    number = np.arange(sum(lengths), dtype=np.float32)[:, None]
    last = np.cumsum(lengths) - 1
    data = Dataset.from_arrays(number, number / 100, number + 1, truncated=np.isin(number[:, 0], last))
    spec = BatchSpec(path=3)
    batch = Sampler(data, CPU, spec).draw(spec, 64, torch.Generator().manual_seed(0))
    obs, action = present(batch.path_obs), present(batch.path_action)
    assert torch.equal(obs[:, 0], batch.next_obs)
    assert torch.equal(action[:, 0], batch.action)
    seen = set()
    for row in range(64):
        first = int(batch.obs[row])
        length = min(3, int(last[last >= first][0]) - first + 1)
        seen.add(length)
        assert int(present(batch.path_length)[row]) == length
        for k in range(length):
            assert float(obs[row, k]) == first + k + 1
            assert float(action[row, k]) == pytest.approx((first + k) / 100)
    assert seen == {1, 2, 3}
    with pytest.raises(ConfigError, match="path=-1"):
        BatchSpec(path=-1)
