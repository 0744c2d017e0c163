"""ZOL on a model of the published size S of Meta Motivo: seconds and memory, with random weights.

    python -m benchmarks.published_size [--steps 200] [--samples 100000] [--threads 2]

24.5 million weights, 358 observations, 69 actions, latents of 256. One number is a ratio: how much longer the
search takes than the same number of bare passes through actor and forward map with gradients.
"""

import resource
from time import perf_counter

import torch
import tyro

from zol import measure
from zol.adapt import ZOLConfig, zol_search
from zol.evidence import Evidence
from zol.models.architecture import Head, NetworkConfig, ObservedField, Tower
from zol.models.network import Network

TOWER = Tower(hidden=1024, layers=2)
SIZE_S = NetworkConfig(
    source="metamotivo/fb_cpr",
    observation=(ObservedField(name="obs", size=358, normalised=True),),
    action_dim=69,
    z_dim=256,
    discount=0.98,
    forward=TOWER.updated(members=2),
    actor=TOWER,
    backward=Head(hidden=256, layers=1, norm=True),
    critic=TOWER.updated(members=2),
    discriminator=Head(hidden=1024, layers=3),
)


def main(steps: int = 200, samples: int = 100_000, threads: int | None = None) -> None:
    """Search once and say what it took.

    Args:
        steps: Steps of the search.
        samples: Labelled states.
        threads: Of torch; all cores unless told.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    model = Network(SIZE_S, generator).freeze()
    obs = torch.randn(samples, model.obs_dim, generator=generator)
    evidence = Evidence(("task",), obs, torch.rand(1, samples, generator=generator), obs[:256])
    start = evidence.prompt(model, "weighted")
    began = perf_counter()
    zol_search(model, evidence, start, ZOLConfig(steps=steps, learning_rate=0.01))
    search, began = perf_counter() - began, perf_counter()
    for _ in range(steps + 1):
        z = start.clone().requires_grad_()
        torch.autograd.grad(measure.forward_mean(model, evidence.starts, z).sum(), z)
    bare = perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    weights = sum(p.numel() for p in model.parameters())
    print(f"{weights:,} weights, {steps} steps, {samples:,} samples, {torch.get_num_threads()} threads:")
    print(f"search {search:.1f} s, bare passes {bare:.1f} s, ratio {search / bare:.2f}, peak {memory:.1f} GB")


if __name__ == "__main__":
    tyro.cli(main)
