"""A training run that is killed, again and again, or out of disk, ends as if nothing had happened."""

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import run
from same_run import assert_same_run

from zol.collect.donut import collect
from zol.common import files
from zol.common.tensors import read_metadata
from zol.data import Batch, Dataset
from zol.models import MODELS
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.train import TrainConfig, fit
from zol.train.run_folder import STATE

SMALL = FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16, backward_hidden=16, normalise_obs=True)
STEPS, KILLS = 1000, 50


class Talking(FBLearner):
    """Says a word at every update, so that it can be killed at a chosen one."""

    def __init__(self, say) -> None:
        super().__init__(fb_network(SMALL, torch.Generator().manual_seed(1)), SMALL)
        self.say = say

    def update(self, batch: Batch, generator: torch.Generator):
        self.say("update")
        return super().update(batch, generator)


def train(say, data: Path, out: Path, save_every: int, steps: int = STEPS) -> None:
    anneal = 0.3 if steps == STEPS else 0.0  # an annealed run cannot be made longer
    config = TrainConfig(steps=steps, batch_size=16, log_every=5, save_every=save_every, anneal=anneal)
    fit(Talking(say), Dataset.open(data), config, out)


def train_with_little_room(say, data: Path, out: Path, limit: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(lambda _: None, data, out, 10, 30)
    except files.DiskFull as error:
        say(str(error))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "set"
    collect(500, torch.Generator().manual_seed(0)).save(path)
    return path


@pytest.fixture(scope="module")
def calm(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody interrupts."""
    path = tmp_path_factory.mktemp("calm") / "run"
    run(train, data, path, 200)
    return path


def test_fifty_kills_at_random_moments_leave_no_trace(data: Path, calm: Path, tmp_path: Path) -> None:
    path, choose, saved = tmp_path / "run", random.Random(0), [0]
    for _ in range(KILLS):
        words, wait = choose.randint(1, 20), choose.uniform(0.0, 0.01)
        run(train, data, path, 7, kill_after=wait, words=words)
        if (path / STATE).exists():
            saved.append(int(read_metadata(path / STATE)["step"]))
    assert saved == sorted(saved)
    assert 0 < saved[-1] < STEPS  # the last kill, too, hit a run that was still going on
    run(train, data, path, 7)
    assert_same_run(path, calm)


def test_five_hundred_steps_then_a_kill_then_five_hundred(data: Path, calm: Path, tmp_path: Path) -> None:
    run(train, data, tmp_path / "run", 500, kill_after=0.0, words=530)
    assert read_metadata(tmp_path / "run" / STATE)["step"] == "500"
    run(train, data, tmp_path / "run", 500)
    assert_same_run(tmp_path / "run", calm)


# Those that act while they learn are killed in test_practice.py and test_fb_cpr_online.py.
RELATIVES = [name for name in MODELS if name != "fb" and not MODELS[name].online]
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {} for name in RELATIVES},
    "fb with a flow": {"actor": "flow", "bc": 0.5, "flow_hidden": 8, "flow_layers": 1},
}


def train_variant(say, data: Path, out: Path, name: str) -> None:
    """Forty steps of another model, with a word at every update."""
    entry = MODELS[name.split()[0]]
    config = entry.config(obs_dim=2, action_dim=2, z_dim=6, hidden=16, backward_hidden=16, **VARIANTS[name])
    learner = entry.learner(entry.network(config, torch.Generator().manual_seed(1)), config)
    update = learner.update

    def loud(batch: Batch, generator: torch.Generator) -> Mapping[str, torch.Tensor]:
        say("update")
        return update(batch, generator)

    learner.update = loud  # type: ignore[method-assign]
    loop = TrainConfig(steps=40, batch_size=16, log_every=5, save_every=3, anneal=0.3)
    fit(learner, Dataset.open(data), loop, out)


@pytest.mark.parametrize("name", VARIANTS)
def test_kills_leave_no_trace_in_any_model(data: Path, tmp_path: Path, name: str) -> None:
    run(train_variant, data, tmp_path / "calm", name)
    for words in (1, 11, 13):
        run(train_variant, data, tmp_path / "run", name, kill_after=0.0, words=words)
    assert 0 < int(read_metadata(tmp_path / "run" / STATE)["step"]) < 40
    run(train_variant, data, tmp_path / "run", name)
    assert_same_run(tmp_path / "run", tmp_path / "calm")


@pytest.mark.skipif(sys.platform != "linux", reason="looks up a file's name in /proc")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full disk", "quota"])
def test_no_room_for_the_state(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The system's own error, raised where it would come from."""
    path = tmp_path / "run"
    train(lambda _: None, data, path, 10, 20)
    before = (path / STATE).read_bytes()
    original = os.fsync

    def full(descriptor: int) -> None:
        if STATE in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(number, os.strerror(number))
        original(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(files.DiskFull) as caught:
            train(lambda _: None, data, path, 10, 40)
    said = str(caught.value)
    for part in (
        f"no room for {path / STATE}",
        "MB are needed",
        "MB are free",
        "step 20 is safe",
        "continues",
    ):
        assert part in said
    assert "\n" not in said
    assert (path / STATE).read_bytes() == before
    assert not list(path.glob(".*.tmp"))
    train(lambda _: None, data, path, 10, 40)


def test_a_file_that_grows_too_large_for_the_system(data: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE: the kernel itself refuses to let the state grow, in the middle of its file."""
    path = tmp_path / "run"
    run(train, data, path, 10, 20)
    before = (path / STATE).read_bytes()
    (said,) = run(train_with_little_room, data, path, len(before) // 2)
    assert "step 20 is safe" in said
    assert (path / STATE).read_bytes() == before
    assert not list(path.glob(".*.tmp"))


SMALL_DISK = """
import json, sys
from pathlib import Path
from test_training_kill import train
from zol.common import files
data, disk = Path(sys.argv[1]), Path(sys.argv[2])
train(print, data, disk / "run", 10, 20)
before = (disk / "run" / "training.safetensors").read_bytes()
with (disk / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(b"x" * 512):
            pass
    except OSError:
        pass
try:
    train(print, data, disk / "run", 10, 40)
    said = "nothing"
except files.DiskFull as error:
    said = str(error)
intact = (disk / "run" / "training.safetensors").read_bytes() == before
(disk / "filler").unlink()
train(print, data, disk / "run", 10, 40)
Path(sys.argv[3]).write_text(json.dumps({"said": said, "intact": intact, "steps": [
    line["step"] for line in map(json.loads, (disk / "run" / "metrics.jsonl").read_text().splitlines())
], "left": [p.name for p in (disk / "run").glob(".*.tmp")]}))
"""


def test_a_disk_that_is_really_full(data: Path, tmp_path: Path) -> None:
    """A file system of 2 MB, in a namespace of its own, where the system allows that."""
    disk, result = tmp_path / "disk", tmp_path / "result.json"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=2m none {disk}"
    if (
        os.name != "posix"
        or subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody mount a small disk")
    job = f'{mount} && exec "{sys.executable}" - "{data}" "{disk}" "{result}"'
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", job],
        input=SMALL_DISK,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    assert "no room for" in found["said"]
    assert "step 20 is safe" in found["said"]
    assert found["intact"]
    assert found["left"] == []
    assert found["steps"] == [5, 10, 15, 20, 25, 30, 35, 40]
