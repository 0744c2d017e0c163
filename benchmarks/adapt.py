"""The paper's sweep of a domain, 72 configurations × 4 tasks: one batched search against the plain way.

The plain way is the one of published code: one configuration and task after another, ``torch.optim.Adam``
on z, and ``backward()``, which also fills the gradients of the frozen networks. Both ways find the same
latents, which is checked first. B of the sample is given to the plain way for nothing. Sizes are those of a
default FB: hidden 256, d = 50, 10,000 samples, 256 start states.

The whole plain sweep takes long, so by default both sides do the same few of the 18 groups of configurations
(a group is one learning rate, λ_χ and λ_z, with both step counts and both clips), with fewer steps. The ratio
does not depend on how many groups there are, because batches hold a fixed number of rows.
"""

from itertools import product

import torch
import tyro
from torch import Tensor

from benchmarks.timing import Case, compare
from zol import checkpoint
from zol.adapt import ZOLConfig, zol_search
from zol.adapt.paper_settings import GRID
from zol.evidence import Evidence
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.prompt import backward_features
from zol.worlds import find_task, make

TASKS, SAMPLES, STARTS = 4, 10_000, 256


def main(
    model: str | None = None,
    groups: int = 4,
    shorter: int = 10,
    repeats: int = 3,
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Compare speeds.

    Args:
        model: Checkpoint of a control domain; random weights and rewards unless told.
        groups: How many of the 18 groups of four configurations both sides do.
        shorter: Divides the paper's 100 and 200 steps; 1 is the paper's sweep.
        repeats: Interleaved repeats; medians are reported.
        threads: Of torch; all cores unless told.
        json: Print one JSON object per line.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    network, evidence = trained(model) if model else untrained()
    configs = sweep(groups, shorter)
    start = evidence.prompt(network)
    B = backward_features(network, evidence.obs)

    def batched() -> Tensor:
        return zol_search(network, evidence, start, configs, trace=False).z

    def plainly() -> Tensor:
        return torch.stack(
            [torch.stack([plain(network, evidence, B, start, c, t) for t in range(TASKS)]) for c in configs]
        )

    gap = float((batched() - plainly()).norm(dim=-1).max() / start.norm(dim=-1).mean())
    if gap > 1e-3:
        raise SystemExit(f"the two ways disagree: latents differ by {gap:.1e} of their length")
    threads_used = torch.get_num_threads()
    name = f"sweep of {len(configs)} configurations × {TASKS} tasks, {threads_used} threads"
    compare([Case(name, "searches/s", len(configs) * TASKS, batched, plainly)], repeats, json)


def sweep(groups: int, shorter: int) -> list[ZOLConfig]:
    """Some groups of the paper's grid, spread over it, each with all step counts and clips."""
    outer = list(product(GRID["learning_rate"], GRID["chi_square"], GRID["trust_region"]))
    chosen = outer[:: max(1, len(outer) // groups)][:groups]
    return [
        ZOLConfig(
            learning_rate=lr,
            chi_square=chi,
            trust_region=region,
            steps=max(1, steps // shorter),
            clip=clip,
        )
        for lr, chi, region in chosen
        for steps, clip in product(GRID["steps"], GRID["clip"])
    ]


def plain(model: Network, evidence: Evidence, B: Tensor, start: Tensor, config: ZOLConfig, t: int) -> Tensor:
    """One search, as one would write it first."""
    z0 = model.project(start[t])
    z = z0.clone().requires_grad_()
    optimiser = torch.optim.Adam([z], lr=config.learning_rate)
    r = evidence.rewards[t] - evidence.rewards[t].mean()
    best, best_z = -torch.inf, z0
    for step in range(config.steps + 1):
        rows = model.project(z).expand(len(evidence.starts), -1)
        mu = model.forward(evidence.starts, rows, model.act(evidence.starts, rows)).mean((0, 1))
        w = torch.nn.functional.softplus((1 - model.discount) * B @ mu)
        w = (w / w.mean()).clamp_max(config.clip)
        penalty = (
            config.chi_square * (w - 1).square().mean()
            + config.trust_region * (model.project(z) - z0).square().sum()
        )
        loss = penalty - (w * r).mean()
        value = -float(loss.detach())
        if value > best:
            best, best_z = value, z.detach().clone()
        if step == config.steps:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            z.copy_(model.project(z))
    return best_z


def untrained() -> tuple[Network, Evidence]:
    """Walker's sizes with random weights; the work of a search does not depend on what they are."""
    generator = torch.Generator().manual_seed(0)
    network = fb_network(FBConfig(obs_dim=24, action_dim=6), generator)
    obs = torch.randn(SAMPLES, 24, generator=generator)
    rewards = torch.sigmoid(obs @ torch.randn(24, TASKS, generator=generator)).mT.contiguous()
    names = tuple(f"task {t}" for t in range(TASKS))
    return network, Evidence(names, obs, rewards, torch.randn(STARTS, 24, generator=generator))


def trained(path: str) -> tuple[Network, Evidence]:
    """A checkpoint and the tasks of its domain."""
    from zol.adapt.paper_settings import TASKS as paper_tasks

    loaded = checkpoint.load(path)
    world = make(str(loaded.facts["world"]))
    tasks = [find_task(world, name) for name in paper_tasks[world.name]]
    return loaded.model, Evidence.label(loaded.sample(world.layout), tasks, loaded.prompt["starts"][:STARTS])


if __name__ == "__main__":
    tyro.cli(main)
