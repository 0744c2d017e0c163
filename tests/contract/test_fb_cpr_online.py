"""Models that act while they learn: exact resume, kills, Ctrl-C, demonstrations, priorities, refusals."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from circles import SMALL_ONLINE, circles, circling
from killing import run
from same_run import assert_same_run

from zol import tracking
from zol.bench.tracking import OWN, RANDOM_ACTION, tracking_rows
from zol.cli import main
from zol.collect.demonstrations import STATES_ONLY, Demonstrations
from zol.collect.online import Online, OnlineConfig
from zol.common.config import ConfigError
from zol.common.errors import DataError, ZolError
from zol.common.tensors import read_metadata
from zol.data import Dataset
from zol.models.base import model_hash
from zol.models.fb_cpr import MODEL, FBCPRConfig, FBCPRLearner
from zol.testing import check_dataset
from zol.train import fit, pretrain, pretrain_online
from zol.train.loop import TrainConfig
from zol.train.run_folder import STATE
from zol.worlds.donut import Donut
from zol.worlds.tabular import corridor

NETWORK: dict[str, Any] = {
    "z_dim": 6,
    "hidden": 16,
    "backward_hidden": 16,
    "discriminator_hidden": 8,
    "discriminator_layers": 1,
}
LOOP: dict[str, Any] = {"batch_size": 32, "log_every": 5, "save_every": 5}
ALL: dict[str, Any] = {**NETWORK, **LOOP, **SMALL_ONLINE}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return circles(tmp_path_factory.mktemp("shown") / "set")


def flags(values: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def test_demonstrations_are_states_without_actions(shown: Dataset) -> None:
    check_dataset(shown)
    assert shown.provenance[STATES_ONLY] is True
    assert not np.asarray(shown.columns["action"]).any()
    assert shown.provenance["names"] == ["left"] * 3 + ["right"] * 3
    world = Donut()
    seen = world.observe(torch.from_numpy(np.array(shown.columns["physics"])))
    np.testing.assert_allclose(seen.float().numpy(), shown.columns["obs"], atol=1e-6)
    first = torch.from_numpy(np.array(shown.episode(0)["obs"]))
    turned = first[:-1, 0] * first[1:, 1] - first[:-1, 1] * first[1:, 0]
    assert bool((turned > 0).all())  # it walks to the left, and skipped what came before


def test_motions_that_are_followed_badly_are_shown_more_often(shown: Dataset) -> None:
    demonstrations = Demonstrations(shown, 8)
    assert demonstrations.weights.tolist() == pytest.approx([1 / 6] * 6)
    # bins ⌊2e⌋ of clipped errors: 1, 1, 1, 1, 3, 10
    demonstrations.prioritise(torch.tensor([0.1, 0.5, 0.6, 0.99, 1.5, 70.0]))
    assert demonstrations.weights.tolist() == pytest.approx([1 / 12] * 4 + [1 / 3] * 2)
    generator = torch.Generator().manual_seed(0)
    obs, following = demonstrations.windows(3000, generator)
    assert obs.shape == following.shape == (3000, 8, 2)
    assert torch.equal(obs[:, 1:], following[:, :-1])  # consecutive states of one motion
    of_last = torch.from_numpy(np.array(shown.episode(5)["obs"]))
    last = (obs[:, :1] == of_last).all(-1).any(-1)
    assert float(last.double().mean()) == pytest.approx(1 / 3, abs=0.03)
    frames = demonstrations.frames(3000, generator)
    every = torch.from_numpy(np.array(shown.columns["physics"]))
    assert bool((frames[:50, None] == every).all(-1).any(-1).all())


def make(shown: Dataset, folder: Path | None, **changes: Any) -> tuple[FBCPRLearner, Online]:
    config = FBCPRConfig(obs_dim=2, action_dim=2, **NETWORK)
    learner = MODEL.learner(MODEL.network(config, torch.Generator().manual_seed(1)), config)
    assert isinstance(learner, FBCPRLearner)
    online = OnlineConfig(**SMALL_ONLINE | {"prioritise_every": 0} | changes)
    return learner, Online(learner, Donut(), Demonstrations(shown, 8), online, folder=folder, seed=0)


def test_batches_hold_what_the_policies_did(shown: Dataset, tmp_path: Path) -> None:
    """Transitions are those of the world, latents are those that acted, finished or not."""
    learner, feed = make(shown, tmp_path / "set")
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.add_(0.1)
    for _ in range(12):
        batch = feed.draw(learner.batches, 64, g)
        learner.update(batch, g)
    assert batch.z is not None
    world = Donut()
    world.set_physics(batch.obs)
    reached = world.step(batch.action).obs
    torch.testing.assert_close(reached.float(), batch.next_obs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(batch.z.norm(dim=-1), torch.full((64,), 6**0.5))
    done = feed.collected()
    check_dataset(done)
    unfinished = int((feed.now.steps * feed.now.running).sum())
    acted = len(done) - len(feed.begun) + unfinished
    assert acted == -(-12 // 5) * 4 * 5  # stretches begun, of 4 environments and 5 steps
    stored = torch.from_numpy(np.array(done.columns["z"]))
    assert len({tuple(row) for row in stored.tolist()}) > 4
    feed.close()


def test_the_memory_forgets_the_oldest(shown: Dataset, tmp_path: Path) -> None:
    learner, feed = make(shown, tmp_path / "set", memory=100)
    g = torch.Generator().manual_seed(0)
    for _ in range(30):
        batch = feed.draw(learner.batches, 64, g)
        learner.update(batch, g)
    past = feed.collected().transitions()
    now = int((feed.now.steps * feed.now.running).sum())
    old = {tuple(row) for row in past.obs[: -(100 - now)].tolist()}
    recent = {tuple(row) for row in past.obs[-(100 - now) :].tolist()}
    drawn = {tuple(row) for row in batch.obs.tolist()}
    assert drawn & recent
    assert not (drawn - recent) & old
    feed.close()


def test_episodes_begin_in_demonstrated_frames(shown: Dataset, tmp_path: Path) -> None:
    frames = {tuple(row) for row in np.asarray(shown.columns["obs"]).tolist()}
    for share, expected in ((1.0, 1.0), (0.0, 0.0)):
        _, feed = make(shown, tmp_path / f"{share}", frame_share=share, random_steps=200)
        data = feed.begun
        first = [tuple(row) for row in np.asarray(data.columns["obs"])[data.first_rows].tolist()]
        assert sum(row in frames for row in first) / len(first) == expected
        feed.close()


def train(say: Any, shown: Path, out: Path, steps: int = 30, save_every: int = 5) -> None:
    """A run that says a word at every update, so that it can be killed at a chosen one."""
    original = FBCPRLearner.update

    def talking(self: FBCPRLearner, *args: Any) -> Any:
        say("update")
        return original(self, *args)

    FBCPRLearner.update = talking  # type: ignore[method-assign, assignment]
    settings = ALL | {"save_every": save_every}
    pretrain_online("fb_cpr", "donut", shown, out=out, steps=steps, **settings)


@pytest.fixture(scope="module")
def calm(shown: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    assert shown.mapped is not None
    run(train, shown.mapped.path, path)
    return path


def test_kills_at_random_moments_leave_no_trace(shown: Dataset, calm: Path, tmp_path: Path) -> None:
    path, choose, saved = tmp_path / "run", random.Random(0), [0]
    assert shown.mapped is not None
    for _ in range(6):
        run(
            train,
            shown.mapped.path,
            path,
            40,
            3,
            kill_after=choose.uniform(0, 0.05),
            words=choose.randint(1, 7),
        )
        if (path / STATE).exists():
            saved.append(int(read_metadata(path / STATE)["step"]))
    assert saved == sorted(saved)
    assert 0 < saved[-1] < 30
    run(train, shown.mapped.path, path, 30, 3)
    assert_same_run(path, calm, "replay")


INTERRUPTED = """
import os, signal, sys
from test_fb_cpr_online import FBCPRLearner, train
count = [0]
def say(_):
    count[0] += 1
    if count[0] == 13:
        os.kill(os.getpid(), signal.SIGINT)
train(say, sys.argv[1], sys.argv[2], 30, 1000)
"""


def test_ctrl_c_loses_nothing(shown: Dataset, calm: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert shown.mapped is not None
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(shown.mapped.path), str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    assert "step 13 of 30 is saved" in done.stderr, done.stderr
    assert done.returncode in (1, -signal.SIGINT, 130)
    assert read_metadata(path / STATE)["step"] == "13"
    run(train, shown.mapped.path, path)
    assert_same_run(path, calm, "replay")


def test_a_run_is_continued_with_the_same_settings_only(
    shown: Dataset, calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZolError, match="frame_share"):
        pretrain_online("fb_cpr", "donut", shown, out=calm, steps=50, **ALL | {"frame_share": 0.1})
    other = circles(tmp_path / "other", episodes=2)
    with pytest.raises(ZolError, match="trained with demonstrations="):
        pretrain_online("fb_cpr", "donut", other, out=calm, steps=50, **ALL)


def test_commands(shown: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Demonstrate, train, prompt, adapt, track: as a user types them."""
    assert shown.mapped is not None
    place, out = str(shown.mapped.path), tmp_path / "run"
    words = ["train", "fb_cpr", "--world", "donut", "--demonstrations", place, "--out", str(out)]
    main([*words, "--steps", "10", "--episodes", "1", *flags(ALL)])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "tracking/emd" in line and "return/mean" in line] == [0, 10]
    card = (out / "README.md").read_text()
    assert "| model | fb_cpr |" in card
    assert f"| demonstrations | 6 motions, 180 steps, {shown.fingerprint()} |" in card
    assert f"| data | {Dataset.open(out / 'replay').fingerprint()} |" in card
    assert (out / "run.toml").exists()
    main(["adapt", str(out), "--task", "outer_ring", "--method", "zol", "--steps", "2", "--episodes", "1"])
    main(["train", "show", str(out)])
    said = capsys.readouterr().out
    assert "outer_ring" in said
    assert "D loss" in said
    words = ["demonstrate", "donut", "--out", str(tmp_path / "own"), "--model", str(out)]
    main([*words, "--tasks", "outer_ring", "--episodes", "2", "--steps", "12"])
    raw = tmp_path / "scores" / "tracking.json"
    main(["bench", "tracking", str(out), "--demonstrations", str(tmp_path / "own"), "--out", str(raw)])
    kept = json.loads(raw.read_text())
    assert {len(values) for values in kept["scores"][str(out)][OWN].values()} == {2}
    assert kept["motions"] == ["outer_ring 0", "outer_ring 1"]
    assert kept["commit"]
    said = capsys.readouterr().out
    assert "2 motions of outer_ring" in said
    assert OWN in said
    assert RANDOM_ACTION in said


def test_experts_are_trained_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demonstrate", "donut", "--tasks", "outer_ring", "--episodes", "2", "--steps", "10"]
    words += ["--expert-steps", "300", "--envs", "5", "--episode-length", "20", "--hidden", "16"]
    words += ["--random-steps", "100"]
    main([*words, "--out", str(tmp_path / "a")])
    kept = tmp_path / "a-experts" / "outer_ring.safetensors"
    before = kept.stat().st_mtime_ns
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "a")])  # it is there already
    (tmp_path / "a").rename(tmp_path / "first")
    main([*words, "--out", str(tmp_path / "a")])
    assert kept.stat().st_mtime_ns == before  # not trained again
    first, again = Dataset.open(tmp_path / "first"), Dataset.open(tmp_path / "a")
    assert first.fingerprint() == again.fingerprint()


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_what_cannot_work_is_said_first(
    shown: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown.mapped is not None
    out = ["--out", str(tmp_path / "run")]
    place = str(shown.mapped.path)
    train = ["train", "fb_cpr", *out]
    assert "none were given" in refused(capsys, *train, "--world", "donut")
    assert "--world NAME" in refused(capsys, *train, "--demonstrations", place)
    said = refused(capsys, *train, "--world", "four_rooms", "--demonstrations", place)
    assert "2 observation columns, four_rooms has 104" in said
    said = refused(capsys, *train, "--world", "donut", "--demonstrations", place, "--window", "90")
    assert "the longest has 30" in said
    said = refused(capsys, *train, "--world", "donut", "--demonstrations", place, "--random-steps", "10")
    assert "do not fill a batch" in said
    assert "states without actions" in refused(capsys, "train", "fb", "--data", place, *out)
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match="not from a set of data"):
        pretrain(shown, "fb_cpr")
    with pytest.raises(DataError, match="setting of fb_cpr"):
        pretrain_online("fb_cpr", "donut", shown, stlye_weight=1.0)
    with pytest.raises(ConfigError, match="no multiple of the stretch"):
        OnlineConfig(stretch=7)
    with pytest.raises(ConfigError, match="no whole number of updates"):
        OnlineConfig(steps_per_update=7)


def test_demonstrations_without_simulator_states(shown: Dataset, tmp_path: Path) -> None:
    columns = {name: column for name, column in shown.columns.items() if name != "physics"}
    bare = Dataset(columns, shown.lengths, shown.provenance)
    with pytest.raises(DataError, match="--frame-share 0"):
        pretrain_online("fb_cpr", "donut", bare, steps=2, **ALL)
    agent = pretrain_online("fb_cpr", "donut", bare, steps=2, **ALL | {"frame_share": 0.0})
    assert agent.model.z_dim == 6
    with pytest.raises(DataError, match="no simulator states"):
        tracking.motions_of(bare)


TORCHRUN = """
from zol.cli import main
import sys
main(sys.argv[1:])
"""


def test_torchrun_is_refused(shown: Dataset, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(TORCHRUN)
    assert shown.mapped is not None
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["train", "fb_cpr", "--world", "donut", "--demonstrations", str(shown.mapped.path)]
    done = subprocess.run(
        [*command, str(script), *words, "--out", str(tmp_path / "run")], capture_output=True, text=True
    )
    assert "run it without torchrun" in done.stderr
    assert not (tmp_path / "run" / "replay").exists()


def test_worlds_with_terminal_states(tmp_path: Path) -> None:
    """Episodes that end early are over, are stored as such, and leave room for new ones."""
    from zol.collect.demonstrations import Show, record

    world = corridor()

    def right(obs: torch.Tensor) -> torch.Tensor:
        action = -torch.ones(len(obs), world.action_dim)
        action[:, -1] = 1.0
        return action

    shown = record(world, [Show("right", right)], tmp_path / "set", episodes=8, steps=10)
    assert bool(shown.columns["terminated"].any())
    config = FBCPRConfig(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, window=1, **NETWORK)
    learner = MODEL.learner(MODEL.network(config, torch.Generator().manual_seed(1)), config)
    assert isinstance(learner, FBCPRLearner)
    online = OnlineConfig(**SMALL_ONLINE | {"prioritise_every": 0})
    feed = Online(learner, world, Demonstrations(shown, 1), online, folder=tmp_path / "replay", seed=0)
    fit(learner, feed.begun, TrainConfig(steps=30, **LOOP), feed=feed)
    data = feed.collected()
    check_dataset(data)
    assert bool(data.columns["terminated"].any())
    assert int(data.lengths.min()) < 20
    feed.close()


def test_tracking_scores_know_a_copy_from_chance(shown: Dataset) -> None:
    """Acting as the demonstrator did gives no distance; scores are in standard deviations."""

    class Copy:
        z_dim = 2

        def act(self, obs: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return circling(obs)

    motions = tracking.motions_of(shown)[:3]
    still: Any = Copy()
    found = tracking.track(Donut(), still, motions, latents=lambda m: torch.zeros(len(m.obs) - 1, 2))
    assert found["distance"].shape == (3,)
    assert float(found["distance"].max()) < 1e-4
    assert float(found["emd"].max()) < 1e-4
    assert found["near"].tolist() == [1.0, 1.0, 1.0]
    scale = tracking.scale_of(motions)
    d = tracking.distance(motions[0].obs + 2 * scale, motions[0].obs, scale)
    torch.testing.assert_close(d, torch.full_like(d, 2.0))


def test_the_controls_of_tracking(shown: Dataset, calm: Path) -> None:
    from zol import checkpoint

    model = checkpoint.load(calm).model
    rows = tracking_rows(Donut(), model, tracking.motions_of(shown), window=8)
    assert all(bool(v.isfinite().all()) for row in rows.values() for v in row.values())
    assert model_hash(model) == checkpoint.load(calm).facts["weights"]
