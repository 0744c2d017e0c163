"""ZOL on a model of the published S size: seconds, and little memory."""

import resource
import time

import foreign_files as files
import pytest
import torch

from zol.adapt import ZOLConfig, zol_search
from zol.evidence import Evidence
from zol.models.foreign import load_foreign

O, A, D, H = 358, 69, 256, 1024


def write_s(folder):
    """Meta Motivo S as published, with random weights: 24.5 million parameters, 98 MB."""
    shapes = (
        files.head("_backward_map.net", O, D, 256, 1)
        | files.forward("_forward_map", O, D, A, D, H, 2)
        | files.actor("_actor", O, D, A, H, 2)
        | files.forward("_critic", O, D, A, 1, H, 2)
        | files.head("_discriminator.trunk", O + D, 1, H, 3)
        | files.statistics("_obs_normalizer", O)
    )
    tensors = {
        name: value / 16 if name.endswith("weight") and value.shape[-2:-1] > (1,) else value
        for name, value in files.fill(shapes).items()
    }
    config, _ = files.metamotivo()
    f = config["archi"]["f"] | {"hidden_dim": H}
    archi = config["archi"] | {"z_dim": D, "f": f, "critic": f}
    archi["b"] = archi["b"] | {"hidden_dim": 256}
    archi["actor"] = archi["actor"] | {"hidden_dim": H}
    archi["discriminator"] = {"hidden_dim": H, "hidden_layers": 3}
    return files.write(folder, config | {"obs_dim": O, "action_dim": A, "archi": archi}, tensors)


@pytest.fixture
def one_thread():
    """Threads that wait for a busy neighbour count as processor time; one thread measures the work itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_200_steps_on_100k_samples_fit_into_two_core_minutes_and_4_gb(tmp_path):
    model = load_foreign(write_s(tmp_path))
    assert sum(p.numel() for p in model.parameters()) == 24_521_800
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(100_000, O, generator=generator)
    evidence = Evidence(("task",), obs, torch.rand(1, 100_000, generator=generator), obs[:256])
    start = evidence.prompt(model, "weighted")
    begin, cpu = time.monotonic(), time.process_time()
    found = zol_search(model, evidence, start, ZOLConfig(steps=200, learning_rate=0.01))
    wall, cpu = time.monotonic() - begin, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"ZOL at size S: {wall:.0f} s wall, {cpu:.0f} s of processor time, peak {memory:.1f} GB")
    assert float(found.distance) > 0
    assert cpu < 120  # 60 s on two cores; wall time would measure the neighbours as well
    assert memory < 4
