"""Weights & Biases gets what metrics.jsonl gets; a stand-in listens, because tests reach no server."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from zol.collect.donut import collect
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.train import TrainConfig, fit
from zol.train.run_folder import RunFolder, read_metrics

SMALL = FBConfig(obs_dim=2, action_dim=2, z_dim=4, hidden=16, backward_hidden=16)


class Listener:
    """What a run of the real package is, as far as zol uses it."""

    def __init__(self, **told: Any) -> None:
        self.told, self.finished = told, False
        self.lines: dict[int, dict[str, float]] = {}

    def log(self, line: dict[str, float], step: int) -> None:
        self.lines[step] = line

    def finish(self) -> None:
        self.finished = True


def test_every_line_arrives_and_a_resumed_run_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Listener] = []

    def init(**told: Any) -> Listener:
        runs.append(Listener(**told))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    data = collect(500, torch.Generator().manual_seed(0))
    for steps in (4, 8):
        learner = FBLearner(fb_network(SMALL, torch.Generator().manual_seed(0)), SMALL)
        fit(
            learner, data, TrainConfig(steps=steps, batch_size=16, log_every=2, wandb="toy"), tmp_path / "run"
        )
    first, second = runs
    assert first.finished
    assert second.finished
    assert first.told["project"] == "toy"
    assert first.told["config"]["batch_size"] == 16
    assert first.told["id"] == second.told["id"]
    stored = {line["step"]: line for line in read_metrics(tmp_path / "run")}
    heard = first.lines | second.lines
    assert list(heard) == list(stored) == [2, 4, 6, 8]
    assert heard[8]["training/loss"] == stored[8]["loss"]


def test_states_of_before_this_option_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = collect(500, torch.Generator().manual_seed(0))

    def train(steps: int) -> None:
        learner = FBLearner(fb_network(SMALL, torch.Generator().manual_seed(0)), SMALL)
        fit(learner, data, TrainConfig(steps=steps, batch_size=16), tmp_path / "run")

    with monkeypatch.context() as patch:
        plain = RunFolder.save

        def save(folder: Any, step: int, tensors: Any, settings: dict[str, Any]) -> None:
            plain(folder, step, tensors, {name: v for name, v in settings.items() if name != "wandb"})

        patch.setattr(RunFolder, "save", save)
        train(2)
    train(4)
    assert read_metrics(tmp_path / "run")[-1]["step"] == 4
