"""HumEnv's three protocols from the command line, on a stand-in body, against slow rollouts."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from circles import SMALL_ONLINE
from humanoid import TASKS, Q, StandIn

from zol import checkpoint, prompt
from zol.adapt import ZOLConfig
from zol.adapt.paper_settings import HUMANOID_GRID, sweep_configs
from zol.bench import BENCHMARKS
from zol.bench.conditions import Conditions, open_model
from zol.bench.humenv import goal_benchmark, reward_benchmark, tracking_benchmark
from zol.bench.store import Store
from zol.bench.sweep import plan_sweep
from zol.cli import main
from zol.collect.demonstrations import Show, record
from zol.common.errors import DataError
from zol.data import Dataset
from zol.data.sources.humenv import read_buffer, read_goals, read_motion_files
from zol.models.network import Network
from zol.tasks.humenv import REWARDS
from zol.tasks.humenv_metrics import pose_distance
from zol.testing import check_world
from zol.tracking import motions_of
from zol.train import pretrain_online

SMALL: dict[str, Any] = {
    "z_dim": 8,
    "hidden": 16,
    "backward_hidden": 16,
    "discriminator_hidden": 8,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with demonstrations, an FB-CPR model of the stand-in, and HumEnv's files."""
    place, world = tmp_path_factory.mktemp("humenv"), StandIn()
    shows = [
        Show("still", lambda obs: torch.zeros(len(obs), 69)),
        Show("bent", lambda obs: torch.ones(len(obs), 69)),
    ]
    shown = record(world, shows, place / "shown", episodes=2, steps=14)
    pretrain_online("fb_cpr", world, shown, out=place / "run", steps=4, **SMALL | SMALL_ONLINE)
    motions = motions_of(shown)
    with h5py.File(place / "m.hdf5", "w") as file:
        for i, motion in enumerate(motions):
            group = file.create_group(f"ep_{i}")
            group["observation"] = motion.obs.double().numpy()
            group["qpos"], group["qvel"] = motion.physics[:, :Q].numpy(), motion.physics[:, Q:].numpy()
    (place / "list.txt").write_text("m.hdf5\n\n")
    goals = {
        "whole": {"observation": motions[0].obs[3].tolist(), "id": 0},
        "bare": motions[2].obs[5].tolist(),
    }
    (place / "goals.json").write_text(json.dumps(goals))
    return place


@pytest.fixture
def model(run: Path) -> Network:
    return checkpoint.load(run / "run").model


def test_the_stand_in_is_a_world() -> None:
    check_world(StandIn())


def test_all_protocols_from_the_command_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zol.bench.humenv.make", lambda name: StandIn())
    monkeypatch.setenv("COLUMNS", "300")
    words = ["bench", "humenv", "--model", str(run / "run"), "--buffer", str(run / "run" / "replay")]
    words += ["--goals", str(run / "goals.json"), "--motions", str(run / "list.txt"), "--tasks", *TASKS[:2]]
    main([*words, "--episodes", "2", "--samples", "60", "--steps", "5", "--out", str(run / "scores")])
    said = capsys.readouterr().out
    for word in (*TASKS[:2], "weighted", "zol", "perturb", "whole", "bare", "proximity", "m/ep_3", "emd"):
        assert word in said
    assert TASKS[2] not in said
    assert (run / "scores.npz").exists()
    with pytest.raises(SystemExit):
        main(["bench", "humenv", "--model", str(run / "run")])
    assert "nothing to test" in capsys.readouterr().err


def test_the_inference_buffer_of_the_published_models(run: Path, model: Network) -> None:
    """Rewards of a file of flat arrays: all methods meet the same falls, and equal latents earn the same."""
    rng, world = np.random.default_rng(0), StandIn()
    after = rng.standard_normal((80, 151))
    with h5py.File(run / "buffer.hdf5", "w") as file:
        file["action"] = rng.uniform(-1, 1, (80, 69)).astype(np.float32)
        file["next_qpos"], file["next_qvel"] = after[:, :Q], after[:, Q:]
        file["next_observation"] = world.observe(torch.from_numpy(after)).numpy()
    data = read_buffer(run / "buffer.hdf5", rows=60, seed=0)
    config = ZOLConfig(steps=1, learning_rate=1e-12)  # a search that does not move
    scores, found = reward_benchmark(
        world, model, data, tasks=TASKS, episodes=3, samples=60, config=config, steps=4
    )
    assert scores.tasks == TASKS
    np.testing.assert_allclose(scores.values["weighted"], scores.values["zol"], atol=1e-4)
    for t, task in enumerate(TASKS):  # the slow way
        world.reset(3, torch.Generator().manual_seed(1))
        states, total = world.set_physics(world.physics), torch.zeros(3, dtype=torch.float64)
        for _ in range(4):
            states = world.step(model.act(states.obs.float(), found["weighted"].latent(task).z))
            total += world.tasks[task](states)
        np.testing.assert_allclose(scores.values["weighted"][0, t], total.numpy(), rtol=1e-5)


def test_goals_are_reached_as_slow_rollouts_say(run: Path, model: Network) -> None:
    world, goals = StandIn(), read_goals(run / "goals.json", 358)
    assert list(goals) == ["whole", "bare"]
    found = goal_benchmark(world, model, goals, episodes=3, seed=5, steps=6)
    for k, goal in enumerate(goals.values()):
        world.reset(3, torch.Generator().manual_seed(5))
        states, distances = world.set_physics(world.physics), []
        for _ in range(6):
            states = world.step(model.act(states.obs.float(), prompt.goal(model, goal)))
            distances.append(pose_distance(states.obs.float(), goal))
        d = torch.stack(distances, 1)
        torch.testing.assert_close(found["distance"][k], d.mean(1))
        assert found["success"][k].tolist() == (d <= 2).any(1).float().tolist()


def test_motions_are_followed_from_their_first_state_to_their_end(run: Path, model: Network) -> None:
    world, motions = StandIn(), read_motion_files(run / "list.txt")
    assert [motion.name for motion in motions] == [f"m/ep_{i}" for i in range(4)]
    short = [motions[0], type(motions[1])("cut", motions[1].obs[:6], motions[1].physics[:6])]
    found = tracking_benchmark(world, model, short, window=8)
    for k, motion in enumerate(short):
        states, distances = world.set_physics(motion.physics[:1]), []
        for z, frame in zip(prompt.tracking(model, motion.obs, 8), motion.obs[1:], strict=True):
            states = world.step(model.act(states.obs.float(), z.unsqueeze(0)))
            distances.append(float(pose_distance(states.obs[0].float(), frame)))
        assert float(found["distance"][k]) == pytest.approx(np.mean(distances), rel=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"a": 3}', "no list of numbers"), ("{}", "no goals"), ('{"a": [1, 2]}', "2 numbers, a pose has 358")],
)
def test_goals_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "g.json").write_text(text)
    with pytest.raises(DataError, match=said):
        read_goals(tmp_path / "g.json", 358)


def test_an_empty_list_of_motions(tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(DataError, match="lists no motion files"):
        read_motion_files(tmp_path / "none.txt")


def test_the_sweep_of_the_humanoid() -> None:
    """15 configurations × 45 tasks; every value of a range of three is tested five times."""
    configs = sweep_configs("humenv")
    assert len({json.dumps(c.model_dump()) for c in configs}) == 15
    for name in ("steps", "chi_square", "trust_region"):
        counts = [sum(getattr(c, name) == value for c in configs) for value in HUMANOID_GRID[name]]
        assert counts == [5, 5, 5]
    assert len(sweep_configs()) == len(sweep_configs("walker")) == 72
    assert BENCHMARKS["sweep"].tasks["humenv"] == tuple(REWARDS)
    assert len(REWARDS) == 45


def test_a_model_of_the_humanoid_is_swept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = {name: StandIn.tasks[TASKS[k % 3]].named(name) for k, name in enumerate(REWARDS)}
    monkeypatch.setattr(StandIn, "tasks", every)
    for module in ("zol.session.opened", "zol.bench.jobs"):
        monkeypatch.setattr(f"{module}.make", lambda name: StandIn())
    conditions, configs = Conditions(name="sweep", episodes=1, steps=2), sweep_configs("humenv")[:1]
    benched = open_model(run / "run", conditions)
    assert benched.domain == "humenv"
    jobs = plan_sweep(benched, conditions, configs, Store(tmp_path / "s.sqlite"))
    cells = [cell for job in jobs for cell in job.run(1)]
    assert len({cell.key for cell in cells}) == 3 * 45  # plain FB, one search and its control, on 45 tasks
    assert all(cell.returns.shape == (1,) for cell in cells)


def test_the_replay_of_a_run_is_a_set_of_its_own(run: Path) -> None:
    replay = Dataset.open(run / "run" / "replay")
    assert replay.provenance["how"] == "online"
    assert replay.columns["z"].shape[1] == 8
