"""Explorers: what they store, that they seek novelty, and that kills change nothing."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import run

from zol.collect.explore import STATE, ExploreConfig, explore
from zol.collect.rnd import RNDConfig
from zol.common.errors import DataError
from zol.data import Dataset
from zol.data.coverage import occupied_cells, scale_of
from zol.testing import check_dataset
from zol.worlds.donut import Donut

TINY = RNDConfig(hidden=16, features=4, batch_size=16, steps_per_update=4, random_steps=60)


class ShortDonut(Donut):
    """The donut with short episodes that begin in one place, so that there is something to find."""

    name = "short donut"
    episode_length = 20

    def reset(self, n, generator):
        corner = torch.tensor([0.6, 0.0])
        return self.set_physics(corner + 0.01 * torch.randn(n, 2, generator=generator))


def config(steps: int, **changes) -> ExploreConfig:
    return ExploreConfig(steps=steps, envs=3, resets=8, rnd=TINY).but(**changes)


@pytest.mark.parametrize("how", ["rnd", "random"])
def test_what_is_stored(tmp_path: Path, how: str):
    data = explore(ShortDonut(), tmp_path / "set", config(205, how=how))
    check_dataset(data)
    assert data.lengths.tolist() == [20] * 11  # rounded up to whole episodes: rounds of 3, 3, 3 and 2
    assert data.resets.shape == (8, 2)
    assert np.array_equal(data.columns["physics"], data.columns["obs"].astype(np.float64))
    step = 0.1 * data.columns["action"][0]
    assert np.allclose(data.columns["obs"][1], data.columns["obs"][0] + step, atol=1e-6)
    assert data.provenance["world"] == "short donut"
    assert data.provenance["seed"] == 0
    assert data.provenance["coverage"]["here"]["cells"] > 0
    assert set(data.provenance["coverage"]["random"]["spread"]) == {"position", "radius"}


def test_the_same_seed_gives_the_same_data(tmp_path: Path):
    prints = [
        explore(ShortDonut(), tmp_path / str(i), config(200, seed=seed)).fingerprint()
        for i, seed in enumerate((1, 1, 2))
    ]
    assert prints[0] == prints[1] != prints[2]


def test_novelty_leads_away_from_the_start(tmp_path: Path):
    agent = RNDConfig(hidden=64, features=16, batch_size=64, steps_per_update=5, random_steps=400)
    plan = config(5000, envs=10, rnd=agent)
    seeking = explore(ShortDonut(), tmp_path / "rnd", plan).transitions().next_obs
    chance = explore(ShortDonut(), tmp_path / "random", plan.but(how="random")).transitions().next_obs
    far = [float((states - torch.tensor([0.6, 0.0])).norm(dim=1).mean()) for states in (seeking, chance)]
    assert far[0] > 1.4 * far[1]


def test_cells_count_what_is_occupied():
    ones = torch.ones(2)
    states = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
    cells = occupied_cells(states, ones)
    assert 20 < cells < 200
    assert occupied_cells(torch.cat([states, states]), ones) == cells
    assert occupied_cells(states * 7, scale_of(states * 7)) == occupied_cells(states, scale_of(states))
    assert occupied_cells(states[:1].expand(50, 2), ones) == 1
    assert occupied_cells(states * 5, ones) > cells


def play(say, path: Path, steps: int) -> None:
    say("begun")
    explore(ShortDonut(), path, config(steps))
    say("done")


def test_killed_twenty_times_gives_the_same_data(tmp_path: Path):
    path, choose, before, kills = tmp_path / "set", random.Random(1), 0, 0
    while kills < 20 or before <= 20:  # a busy machine gets further between kills if there are more of them
        kills += 1
        assert kills < 200
        said = run(play, path, 600_000, kill_after=choose.uniform(0.1, 0.5))
        assert said == ["begun"]
        if (path / "dataset.json").exists():
            data = Dataset.open(path)
            assert data.episodes >= before
            assert [bytes(d) for d in data.stored_digests] == list(data.digests())
            before = data.episodes
    steps = (before // 3 + 2) * 3 * 20
    run(play, path, steps)
    run(play, tmp_path / "calm", steps)
    assert Dataset.open(path).fingerprint() == Dataset.open(tmp_path / "calm").fingerprint()


def test_a_kill_between_commit_and_state_is_repeated_not_doubled(tmp_path: Path):
    path = tmp_path / "set"
    explore(ShortDonut(), path, config(180))
    state = (path / STATE).read_bytes()
    whole = explore(ShortDonut(), path, config(360)).fingerprint()
    (path / STATE).write_bytes(state)  # as if killed before the states of the last rounds were written
    assert explore(ShortDonut(), path, config(360)).fingerprint() == whole
    (path / STATE).unlink()
    assert explore(ShortDonut(), path, config(360)).fingerprint() == whole


class SlowDonut(ShortDonut):
    """The same world in another version."""

    def step(self, action):
        return super().step(0.5 * action)


def test_refusals(tmp_path: Path):
    path = tmp_path / "set"
    data = explore(ShortDonut(), path, config(120))
    with pytest.raises(DataError, match="was begun with seed=0, now 5 is asked for"):
        explore(ShortDonut(), path, config(120, seed=5))
    (path / STATE).unlink()
    with pytest.raises(DataError, match="cannot be repeated exactly"):
        explore(SlowDonut(), path, config(120))
    with pytest.raises(DataError, match=r"from explore \(short donut\), not an exploration of donut"):
        explore(Donut(), path, config(120))
    assert Dataset.open(path).fingerprint() == data.fingerprint()
