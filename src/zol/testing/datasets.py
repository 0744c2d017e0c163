"""A public contract check for datasets: run it on your own."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from zol.data import Dataset
from zol.data.episodes import ROUNDING


def check_dataset(dataset: Dataset) -> None:
    """Check that a dataset keeps the promises that training and evaluation rely on.

    Raises AssertionError with the broken promise. The set is scanned and copied once.
    """
    steps, rows = len(dataset), len(dataset) + dataset.episodes
    assert steps > 0, "a dataset has at least one transition"
    assert (dataset.lengths > 0).all(), "every episode has at least one step"
    assert all(len(c) == rows for c in dataset.columns.values()), "an episode of L steps owns L + 1 rows"

    columns = dataset.columns
    for name in ("obs", "action"):
        assert columns[name].dtype == np.float32, f"'{name}' is float32"
        assert columns[name].ndim == 2, f"'{name}' is a table [rows, columns]"
    for name, column in columns.items():
        if column.dtype.kind == "f":
            assert np.isfinite(column).all(), f"'{name}' is finite"
    assert np.abs(columns["action"]).max() <= 1 + ROUNDING, "actions are normalised to [−1, 1]"
    final = dataset.first_rows + dataset.lengths
    ends = np.zeros(rows, dtype=bool)
    ends[final - 1] = True
    assert not columns["action"][final].any(), "the final state of an episode has no action (zeros)"
    done = np.asarray(columns["terminated"]) | np.asarray(columns["truncated"])
    assert np.array_equal(done, ends), "the last step of an episode, and no other, is terminated or truncated"

    first = dataset.sample(64, torch.Generator().manual_seed(0))
    again = dataset.sample(64, torch.Generator().manual_seed(0))
    assert torch.equal(first.obs, again.obs), "the same generator gives the same sample"
    assert first.next_obs.shape == first.obs.shape, "every state has a successor"
    everything = dataset.transitions()
    assert len(everything) == steps, "transitions() gives every step once"
    same_episode = ~torch.from_numpy(ends[dataset.rows(np.arange(steps))])[:-1]
    assert torch.equal(everything.next_obs[:-1][same_episode], everything.obs[1:][same_episode]), (
        "inside an episode, the next state of a step is the state of the next step"
    )
    starts = dataset.starts()
    assert starts.shape[0] > 0, "there is a start state"
    assert starts.shape[1] == dataset.obs_dim, "start states are observations"

    with tempfile.TemporaryDirectory() as folder:
        stored = dataset.save(Path(folder) / "set")
        assert stored.fingerprint() == dataset.fingerprint(), "saving does not change the fingerprint"
        digests = [bytes(digest) for digest in np.asarray(stored.stored_digests)]
        assert digests == list(dataset.digests()), "what is stored is what was given"
