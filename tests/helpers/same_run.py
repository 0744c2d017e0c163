"""Whether two runs ended alike: weights, training state, metrics but for speed, and sets that they filled."""

from pathlib import Path

import torch

from zol.common.tensors import read_tensors
from zol.data import Dataset
from zol.train.run_folder import STATE, read_metrics


def assert_same_run(found: Path, expected: Path, *sets: str) -> None:
    """``sets`` are folders of datasets in those of the runs."""
    for name in (STATE, "model.safetensors", "prompt.safetensors"):
        ours, theirs = read_tensors(found / name), read_tensors(expected / name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert torch.equal(ours[key], theirs[key]), f"{name}: {key}"
    lines = [[{**line, "steps_per_second": 0} for line in read_metrics(path)] for path in (found, expected)]
    assert lines[0] == lines[1]
    for name in sets:
        filled = [Dataset.open(path / name).fingerprint() for path in (found, expected)]
        assert filled[0] == filled[1], name
    assert not list(found.glob(".*.tmp"))
