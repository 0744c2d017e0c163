"""Sampling a batch of 1024 transitions from disk against the training step that consumes it.

    python -m benchmarks.sampling [--json] [--rows 1000000]

Sampling must never be the bottleneck: the ratio says how many batches could be drawn per FB update.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import Case, compare
from zol.data import Dataset, DatasetWriter
from zol.models.fb import FBConfig, FBLearner, fb_network


def write(path: Path, rows: int) -> Dataset:
    """Walker-sized rows in episodes of 1000 steps."""
    rng = np.random.default_rng(0)
    obs, action = rng.standard_normal((50, 1001, 24), dtype=np.float32), rng.uniform(-1, 1, (50, 1000, 6))
    with DatasetWriter(path) as writer:
        for _ in range(max(1, rows // 50_000)):
            writer.append_batch(obs, action)
    return Dataset.open(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--rows", type=int, default=1_000_000, help="transitions in the set")
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repeats; medians are reported")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    config = FBConfig(obs_dim=24, action_dim=6)
    learner = FBLearner(fb_network(config), config)
    with tempfile.TemporaryDirectory() as folder:
        data = write(Path(folder) / "set", options.rows)
        batch = data.sample(1024, generator)
        case = Case(
            f"1024 of {len(data):,} transitions",
            "batches/s",
            1,
            ours=lambda: data.sample(1024, generator),
            reference=lambda: learner.update(batch, generator),
        )
        compare([case], options.repeats, options.json)


if __name__ == "__main__":
    main()
