"""Training from sets larger than memory: resident size, measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Walker-sized rows, and a small FB that trains on them.
SCRIPT = """
import json, sys
import numpy as np, torch
from zol.data import Batch, Dataset, DatasetWriter
from zol.models.fb import FBConfig, FBLearner, fb_network

torch.set_num_threads(1)  # on a busy machine a second thread costs a hundred times its work

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

path, rows = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
with DatasetWriter(path) as writer:
    block = rng.standard_normal((50, 1001, 24), dtype=np.float32), rng.uniform(-1, 1, (50, 1000, 6))
    for _ in range(rows // 50_000):
        writer.append_batch(*block, physics=block[0][..., :18])
generator = torch.Generator().manual_seed(0)
config = FBConfig(obs_dim=24, action_dim=6, z_dim=8, hidden=8, backward_hidden=8)
learner = FBLearner(fb_network(config), config)
first = [torch.zeros(1024, n) for n in (24, 6, 24)] + [torch.zeros(1024, dtype=torch.bool)]
learner.update(Batch(*first), generator)
before, peak = resident(), 0
data = Dataset.open(path)
for i in range(1000):
    learner.update(data.sample(1024, generator, physics=i % 2 == 0), generator)
    if i % 25 == 0:
        peak = max(peak, resident())
fingerprint, again = data.fingerprint(), list(data.digests())
peak = max(peak, resident())
print(json.dumps({"gigabytes": (peak - before) / 1e9}))
"""


def measure(path: Path, rows: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(rows)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
@pytest.mark.parametrize("rows", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_large_sets_stay_on_disk(tmp_path: Path, rows: int):
    found = measure(tmp_path / "set", rows)
    assert found["gigabytes"] < (0.6 if rows == 1_000_000 else 1.3), found
