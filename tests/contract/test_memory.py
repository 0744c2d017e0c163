"""Freed memory stays with the process, counted in page faults."""

import platform
import subprocess
import sys

import pytest

# The heap has its shape after a few updates, and seldom grows in a later one: a median of those tells.
# In a process of its own: the setting holds for a whole process, and so does what glibc has learned so far.
COUNT_FAULTS = """
import resource
import torch
from zol.data import Batch
from zol.common.memory import keep_freed_memory
from zol.models.fb import FBConfig, FBLearner, fb_network

assert keep_freed_memory()
torch.set_num_threads(1)
config = FBConfig(obs_dim=24, action_dim=6)
learner = FBLearner(fb_network(config), config)
obs, next_obs = torch.randn(2, 1024, 24)
batch = Batch(obs, torch.rand(1024, 6), next_obs, torch.zeros(1024, dtype=torch.bool))
counts = []
for _ in range(24):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    learner.update(batch, torch.Generator())
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(counts[8:])[8])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_updates_cause_no_page_faults() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50  # thousands without the setting
