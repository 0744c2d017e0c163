"""What a loaded model is for: it passes the contract, ZOL moves its latents, benchmarks run it."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import foreign_files as files
import numpy as np
import pytest
import torch

from zol.adapt import ZOLConfig, zol_search
from zol.bench.humenv import goal_benchmark, reward_benchmark
from zol.data import Dataset
from zol.evidence import Evidence
from zol.fields import Field, Layout, States
from zol.models.base import model_hash
from zol.models.foreign import load_foreign
from zol.models.wrap import wrap
from zol.schedule import switch
from zol.tasks import Task
from zol.testing import check_model
from zol.tracking import play

MAKERS: dict[str, tuple[Callable[[], files.Stored], dict[str, Any] | None]] = {
    "metamotivo": (files.metamotivo, None),
    "fb": (files.td_jepa_fb, files.KWARGS),
    "flow": (lambda: files.td_jepa_fb(flow=True), files.KWARGS),
    "hilp": (files.td_jepa_hilp, files.KWARGS),
    "jepa": (files.td_jepa_jepa, files.KWARGS),
    "bfm_zero": (files.bfm_zero, files.BFM_KWARGS),
}

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=MAKERS)
def model(request, tmp_path):
    make, kwargs = MAKERS[request.param]
    config, stored = make()
    return load_foreign(files.write(tmp_path, config, stored, kwargs), discount=0.9)


def test_contract(model):
    check_model(model)


def test_zol_runs_and_leaves_the_weights_alone(model):
    before = model_hash(model)
    obs = torch.randn(300, model.obs_dim, generator=torch.Generator().manual_seed(0))
    evidence = Evidence(("first", "last"), obs, obs[:, [0, -1]].T.contiguous(), obs[:32])
    config = ZOLConfig(steps=30, learning_rate=0.02, trust_region=0.0, chi_square=0.0)
    found = zol_search(model, evidence, evidence.prompt(model), config)
    assert bool((found.distance > 1e-3).all())
    assert bool((found.trace["objective"][-1] > found.trace["objective"][0]).all())
    assert model_hash(model) == before


def test_wrapping_a_loaded_model_changes_nothing(model):
    sizes = {"obs_dim": model.obs_dim, "action_dim": model.action_dim, "z_dim": model.z_dim}
    wrapped = wrap(model, discount=model.discount, measure=model.measure, **sizes)
    obs, z = torch.randn(4, model.obs_dim), model.project(torch.randn(4, model.z_dim))
    torch.testing.assert_close(wrapped.act(obs, z), model.act(obs, z))
    torch.testing.assert_close(wrapped(obs, z, model.act(obs, z)), model(obs, z, model.act(obs, z)))


class Drift:
    """A world of points that actions push around: as wide as an observation of HumEnv, and trivial."""

    name, action_dim, episode_length, discount = "drift", files.A, 6, 0.9
    layout = Layout(files.O, (Field("x", 0, files.O),))
    threads: int | None = None

    def __init__(self):
        self.tasks: Mapping[str, Task] = {
            "left": Task("left", lambda s: -s.obs[..., 0]),
            "up": Task("up", lambda s: s.obs[..., 1]),
        }
        self.physics = torch.zeros(0, files.O)

    def reset(self, n, generator):
        return self.set_physics(torch.randn(n, files.O, generator=generator))

    def set_physics(self, physics):
        self.physics = physics.clone()
        return States(self.observe(physics), self.layout, physics=physics)

    def observe(self, physics):
        return physics.clone()

    def step(self, action):
        self.physics[:, : files.A] += 0.1 * action
        return States(self.physics.clone(), self.layout, action=action, physics=self.physics.clone())


def test_the_reward_protocol_pairs_methods_on_the_same_starts(tmp_path):
    config, stored = files.metamotivo()
    model = load_foreign(files.write(tmp_path, config, stored), discount=0.9)
    generator = torch.Generator().manual_seed(0)
    obs, step = torch.randn(200, files.O, generator=generator), torch.zeros(200, files.A)
    data = Dataset.from_arrays(obs, step, obs + 0.1)
    scores, methods = reward_benchmark(
        Drift(), model, data, episodes=3, samples=150, config=ZOLConfig(steps=3)
    )
    assert scores.methods == ["weighted", "zol", "perturb"]
    assert scores.values["zol"].shape == (1, 2, 3)
    assert methods["zol"].evidence.obs.shape == (150, files.O)
    again, _ = reward_benchmark(Drift(), model, data, episodes=3, samples=150, config=ZOLConfig(steps=0))
    # Without search both methods are the same latent, and meet the same starts.
    np.testing.assert_allclose(again.values["zol"], again.values["weighted"], rtol=1e-5)


def test_goals_and_schedules_run_in_a_world(tmp_path):
    config, stored = files.metamotivo()
    model = load_foreign(files.write(tmp_path, config, stored), discount=0.9)
    goals = {"here": torch.zeros(files.O), "there": torch.ones(files.O)}
    scores = goal_benchmark(Drift(), model, goals, episodes=3)
    assert scores["distance"].shape == (2, 3)
    z = model.project(torch.randn(2, files.D, generator=torch.Generator().manual_seed(0)))
    start = torch.randn(1, files.O, generator=torch.Generator().manual_seed(1))
    both = play(Drift(), model, switch([z[0], z[1]], at=[3]), start, 6)
    first = play(Drift(), model, switch([z[0]], at=[]), start, 6)
    assert torch.equal(both[:, :3], first[:, :3])
    assert not torch.equal(both[:, 3:], first[:, 3:])


@pytest.mark.slow
def test_a_search_at_the_published_size_needs_little_memory() -> None:
    """Meta Motivo S, 200 steps on 100,000 samples; ``benchmarks.published_size`` measures the time."""
    code = "from benchmarks.published_size import main; main(steps=20, threads=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "24,521,800 weights" in done.stdout
    assert float(done.stdout.split("peak ")[1].split(" GB")[0]) < 4
