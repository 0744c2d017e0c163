"""torchrun on the command line: two processes train the model that one process trains, and write it once."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from zol.collect.donut import collect
from zol.common.tensors import read_tensors
from zol.train.run_folder import read_metrics

WORDS = (
    "--batch-size 32 --hidden 16 --backward-hidden 16 --z-dim 6 --log-every 5 --save-every 5 "
    "--episodes 0 --anneal 0 --threads 1 --dynamics-steps 0"
)


def train(data: Path, out: Path, steps: int, processes: int) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = ["train", "fb", "--data", str(data), "--out", str(out), "--steps", str(steps), *WORDS.split()]
    program = [sys.executable, *(launcher if processes > 1 else []), "-m", "zol", *words]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the checkpoint is in") == 1


def test_two_processes_train_what_one_does_and_resume(tmp_path: Path) -> None:
    data = tmp_path / "set"
    collect(500, torch.Generator().manual_seed(0)).save(data)
    train(data, tmp_path / "one", 20, processes=1)
    train(data, tmp_path / "two", 10, processes=2)
    train(data, tmp_path / "two", 20, processes=2)  # continues
    one, two = (read_tensors(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        # Adam divides by the size of a gradient: rounding of gradients near zero shows.
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4, msg=name)
    assert [line["step"] for line in read_metrics(tmp_path / "two")] == [5, 10, 15, 20]
