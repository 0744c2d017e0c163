"""Explorers: what they store, that they seek novelty, and that kills change nothing."""

import json
import random
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import run
from present import present

from zol.collect.explore import STATE, ExploreConfig, explore
from zol.collect.memory import RoundMemory
from zol.collect.rnd import RNDAgent, RNDConfig
from zol.common.errors import DataError
from zol.data import Batch, Dataset
from zol.data.coverage import occupied_cells, scale_of
from zol.testing import check_dataset
from zol.worlds.donut import Donut
from zol.worlds.episode import episode, random_policy
from zol.worlds.tabular import TabularWorld, corridor

TINY = RNDConfig(hidden=16, features=4, batch_size=16, steps_per_update=4, random_steps=60)


class ShortDonut(Donut):
    """The donut with short episodes that begin in one place, so that there is something to find."""

    name = "short donut"
    episode_length = 20

    def reset(self, n, generator):
        corner = torch.tensor([0.6, 0.0])
        return self.set_physics(corner + 0.01 * torch.randn(n, 2, generator=generator))


def config(steps: int, **changes) -> ExploreConfig:
    return ExploreConfig(steps=steps, envs=3, resets=8, rnd=TINY).updated(**changes)


@pytest.mark.parametrize("how", ["rnd", "random"])
def test_what_is_stored(tmp_path: Path, how: str):
    data = explore(ShortDonut(), tmp_path / "set", config(205, how=how))
    check_dataset(data)
    assert data.lengths.tolist() == [20] * 11  # rounded up to whole episodes: rounds of 3, 3, 3 and 2
    assert data.resets is not None
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
    chance = explore(ShortDonut(), tmp_path / "random", plan.updated(how="random")).transitions().next_obs
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
    while kills < 20 or before <= 20:
        kills += 1
        assert kills < 200
        patience = 1 if kills <= 20 else kills / 20  # a busy machine gets further in a longer time
        said = run(play, path, 600_000, kill_after=patience * choose.uniform(0.1, 0.5))
        assert said == ["begun"]
        if (path / "dataset.json").exists():
            data = Dataset.open(path)
            assert data.episodes >= before
            assert data.stored_digests is not None
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


WIDER = {"noise_range": (0.1, 0.8), "random_share": 0.34, "rnd": TINY.updated(n_step=3)}


def test_a_wider_mix_goes_on_exactly(tmp_path: Path):
    plain = explore(ShortDonut(), tmp_path / "plain", config(360)).fingerprint()
    path = tmp_path / "set"
    explore(ShortDonut(), path, config(180, **WIDER))
    state = (path / STATE).read_bytes()
    whole = explore(ShortDonut(), path, config(360, **WIDER)).fingerprint()
    assert whole != plain
    (path / STATE).write_bytes(state)  # as if killed before the states of the last rounds were written
    assert explore(ShortDonut(), path, config(360, **WIDER)).fingerprint() == whole
    with pytest.raises(DataError, match=r"was begun with random_share=0\.34, now 0\.0 is asked for"):
        explore(ShortDonut(), path, config(360, **WIDER | {"random_share": 0.0}))


def test_sets_of_before_go_on_with_the_defaults_of_newer_settings(tmp_path: Path):
    path = tmp_path / "set"
    explore(ShortDonut(), path, config(180))
    header = json.loads((path / "dataset.json").read_text())
    for settings, name in ((header["provenance"]["config"], "noise_range"), (None, "n_step")):
        del (settings or header["provenance"]["config"]["rnd"])[name]
    (path / "dataset.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match="was begun with noise_range=None"):
        explore(ShortDonut(), path, config(360, noise_range=(0.1, 0.3)))
    whole = explore(ShortDonut(), tmp_path / "whole", config(360)).fingerprint()
    assert explore(ShortDonut(), path, config(360)).fingerprint() == whole


def test_who_explores_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One of three environments acts at random; noise rises over the others."""
    original, seen = RNDAgent.act, []

    def act(self, obs, generator, noise=None):
        assert noise is not None
        seen.append((len(obs), noise.flatten().tolist()))
        return original(self, obs, generator, noise)

    monkeypatch.setattr(RNDAgent, "act", act)
    explore(ShortDonut(), tmp_path / "set", config(240, **WIDER))
    assert all(rows == 2 and noise == pytest.approx([0.1, 0.8]) for rows, noise in seen)
    assert len(seen) == 60  # the first 60 of 240 steps, 20 of each environment, are at random


def test_n_steps_of_novelty_before_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ_{k<m} γ^k r_k + γ^m Q̄ for paths of m ≤ 3 steps, against a loop over rows."""
    g = torch.Generator().manual_seed(0)
    path, length = torch.randn(8, 3, 2, generator=g), torch.tensor([1, 2, 3, 3, 1, 2, 3, 2])
    over = torch.tensor([True, False, True, False, False, True, False, False])
    batch = Batch(torch.randn(8, 2, generator=g), torch.randn(8, 1, generator=g), path[:, 0], over)
    batch = replace(batch, path_obs=path, path_length=length)
    agent = RNDAgent(2, 1, TINY.updated(n_step=3, discount=0.9), g)
    seen: list[torch.Tensor] = []

    def critic(s, action, last, reward, gamma, generator):
        seen.extend((last, reward, gamma))

    monkeypatch.setattr(agent, "_update_critic", critic)
    before = deepcopy((agent.predictor, agent.random_net))
    agent.update(batch, g)
    scale = float(agent.error_scale.running_var + 1e-12) ** -0.5
    for row in range(8):
        states = agent._normalise(path[row])
        with torch.no_grad():
            error = (before[0](states) - before[1](states)).square().mean(-1) * scale
        m = int(length[row])
        assert torch.allclose(seen[0][row], states[m - 1])
        assert float(seen[1][row]) == pytest.approx(sum(0.9**k * float(error[k]) for k in range(m)), rel=1e-5)
        assert float(seen[2][row]) == pytest.approx(0.0 if over[row] else 0.9**m)


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


class TestEpisodesThatEndEarly:
    """A corridor whose ends are terminal: episodes differ in length, and nothing else changes."""

    def explored(self, path: Path, steps: int = 700, world: TabularWorld | None = None, **changes) -> Dataset:
        return explore(world or corridor(), path, config(steps, envs=5, **changes))

    @pytest.mark.parametrize("how", ["rnd", "random"])
    def test_what_is_stored(self, tmp_path: Path, how: str) -> None:
        data = self.explored(tmp_path / "set", how=how)
        check_dataset(data)
        assert len(data) >= 700
        assert len(data) - int(data.lengths[-5:].sum()) < 700  # the last round was needed
        ended, moved = np.zeros(data.episodes, dtype=bool), []
        for number in range(data.episodes):
            rows = data.episode(number)
            cells = rows["obs"].argmax(1)
            assert not np.isin(cells[:-1], (0, 8)).any()  # nothing is recorded after a terminal state
            ended[number] = np.isin(cells[-1], (0, 8))
            assert rows["terminated"].any() == ended[number]
            assert rows["truncated"].any() == (not ended[number])
            assert np.array_equal(rows["physics"][:, 0], cells)
            moved.append(np.diff(cells) * np.where(rows["action"][:-1].argmax(1) == 1, 1, -1))
        assert set(np.concatenate(moved)) == {-1, 1}
        assert 0.85 < (np.concatenate(moved) == 1).mean() < 0.95  # one move in ten slips
        assert ended.any()
        assert (~ended).any() or how == "rnd"  # novelty runs straight to the ends
        assert (data.lengths[~ended] == 30).all()

    def test_an_interrupted_explorer_goes_on_exactly(self, tmp_path: Path) -> None:
        class Stopping(TabularWorld):
            left = 150

            def step(self, action):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
                return super().step(action)

        sound = corridor()
        stopping = Stopping(sound.name, sound.mdp, sound.episode_length, sound.tasks.values())
        with pytest.raises(KeyboardInterrupt) as stop:
            self.explored(tmp_path / "set", world=stopping)
        kept = Dataset.open(tmp_path / "set")
        assert kept.episodes > 0
        assert f"{len(kept):,} steps in {kept.episodes:,} episodes are saved" in str(stop.value)
        assert "steps of the unfinished round are lost" in str(stop.value)
        whole = self.explored(tmp_path / "calm").fingerprint()
        assert self.explored(tmp_path / "set").fingerprint() == whole
        (tmp_path / "set" / STATE).unlink()  # everything is played again and compared
        assert self.explored(tmp_path / "set").fingerprint() == whole

    def test_memory_draws_every_step_of_both_rounds_equally(self, tmp_path: Path) -> None:
        world = corridor()
        past = self.explored(tmp_path / "set", 60, how="random")
        generator = torch.Generator().manual_seed(0)
        states = world.reset(4, generator)
        memory = RoundMemory(tmp_path / "set", len(past), world, states)
        seen: list[tuple[torch.Tensor, ...]] = [
            (b.obs, b.action, b.next_obs, b.terminated.unsqueeze(1)) for b in [past.transitions()]
        ]
        for t, step in enumerate(episode(world, states, random_policy(world, generator), 30)):
            memory.add(t, step)
            reached = step.states
            ended = present(reached.terminated).unsqueeze(1)
            columns = (states.obs, present(reached.action), reached.obs, ended)
            seen.append(tuple(step.those(column) for column in columns))
            states = reached
        rows = torch.cat([torch.cat([c.float() for c in part], 1) for part in seen])
        assert len(rows) == len(past) + memory.steps == len(past) + int(memory.lengths.sum())
        batch = memory.sample(60 * len(rows), generator)
        drawn = (batch.obs, batch.action, batch.next_obs, batch.terminated.unsqueeze(1))
        table = torch.cat([c.float() for c in drawn], 1)
        counts = (table.unsqueeze(1) == rows).all(-1).sum(0)  # actions are continuous, so rows are distinct
        assert int(counts.sum()) == len(table)
        assert (counts > 25).all()
        assert (counts < 110).all()
        assert table[:, -1].any()
        self.check_paths(memory, past, generator)

    @staticmethod
    def check_paths(memory: RoundMemory, past: Dataset, g: torch.Generator) -> None:
        """Every path is a stretch of an episode, as long as it can be, and knows how it ended."""
        batch = memory.sample(400, g, 3)
        paths, lengths = present(batch.path_obs), present(batch.path_length)
        episodes = [past.episode(k)["obs"] for k in range(past.episodes)]
        episodes += [rows["obs"] for rows in memory.episodes()]
        ways = {}  # actions are continuous, so that the first one tells which step it is
        actions = [past.episode(k)["action"] for k in range(past.episodes)]
        actions += [rows["action"] for rows in memory.episodes()]
        for obs, action in zip(episodes, actions, strict=True):
            for t in range(len(obs) - 1):
                ways[action[t].tobytes()] = (obs[t + 1 : t + 4], len(obs) - 1 - t)
        for row in range(400):
            way, left = ways[batch.action[row].numpy().tobytes()]
            assert int(lengths[row]) == len(way) == min(3, left)
            assert np.array_equal(paths[row, : len(way)].numpy(), way)
            assert bool(batch.terminated[row]) == (left <= 3 and way[-1].argmax() in (0, 8))


def test_nothing_follows_a_terminal_state() -> None:
    """If every step ends in a terminal state, the agent learns as if it did not look ahead at all."""
    g = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, 64, 2, generator=g)
    action = 2 * torch.rand(64, 1, generator=g) - 1
    states = []
    for agent_config, over in ((TINY, True), (TINY.updated(discount=0.0), False), (TINY, False)):
        agent = RNDAgent(2, 1, agent_config, torch.Generator().manual_seed(1))
        for _ in range(4):
            batch = Batch(obs, action, next_obs, torch.full((64,), over))
            agent.update(batch, torch.Generator().manual_seed(2))
        states.append(agent.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])
