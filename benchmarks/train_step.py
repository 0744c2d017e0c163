"""One update of every model against a straightforward one of the same mathematics, and the FB loss alone.

    python -m benchmarks.train_step [--json] [--models NAME ...] [--repeats 9] [--threads 2]

Updates: ours against ``benchmarks.reference_update`` (FB), ``benchmarks.reference_family`` and
``benchmarks.reference_others``, after one step of both has given the same weights. Each side has a process of
its own and takes a few updates in a row, as in training: in one process they would share a memory allocator,
which training sets up (zol.common.memory) and public code leaves as it is.
Losses: the Gram form against two N×N forms. ``published`` selects off-diagonal entries by a Boolean mask, as
FB was first published; ``lean`` is our own N×N path (``dense_loss``), which squares everything and takes the
diagonal off; it serves pessimistic targets. Last, where the time of an update goes.
"""

import argparse
import json
import multiprocessing
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import reference_family, reference_others
from benchmarks.reference_update import Reference
from benchmarks.timing import Case, compare
from zol.common.memory import keep_freed_memory
from zol.data import Batch
from zol.fields import Layout
from zol.models import MODELS
from zol.models.layers import unit
from zol.models.learner import NetworkLearner
from zol.models.losses import Loss, dense_loss, gram_loss, orthonormality_loss
from zol.models.prior_features import PriorFeaturesLearner

SIZES = [(1024, 256, 50), (1024, 512, 100), (1024, 1024, 50)]  # N, hidden, d
BATCHES = [(512, 50), (1024, 50)]  # N, d
OBS, ACTION = 24, 6
LOSSES = 10  # per measurement: a single one takes a millisecond, too short to time
UPDATES = 3  # in a row, per measurement
PROFILED = 10  # updates
PATH, WINDOW = 3, 8  # steps that follow, and demonstrated states in a row, of models that look at them
CASES = reference_family.CASES | reference_others.CASES

Losses = tuple[Callable[..., Loss], Callable[[Tensor], Tensor]]  # measure loss, orthonormality loss


def published_loss(F: Tensor, B: Tensor, target_F: Tensor, target_B: Tensor, gamma: Tensor) -> Loss:
    """Off-diagonal entries by Boolean mask."""
    off = ~torch.eye(len(B), dtype=torch.bool)
    error = torch.einsum("pid,jd->pij", F, B) - gamma.unsqueeze(-1) * (target_F @ target_B.mT)
    value = sum(0.5 * member[off].pow(2).mean() - member.diagonal().mean() for member in error)
    return Loss(value, {})


def published_orthonormality(B: Tensor) -> Tensor:
    """½ mean of the squared off-diagonal entries of BBᵀ, minus the mean of its diagonal."""
    covariance = B @ B.mT
    off = ~torch.eye(len(B), dtype=torch.bool)
    return 0.5 * covariance[off].pow(2).mean() - covariance.diagonal().mean()


def lean_loss(F: Tensor, B: Tensor, target_F: Tensor, target_B: Tensor, gamma: Tensor) -> Loss:
    return dense_loss(F, B, target_F @ target_B.mT, gamma)


OURS: Losses = (gram_loss, orthonormality_loss)
REFERENCES: dict[str, Losses] = {
    "published": (published_loss, published_orthonormality),
    "lean": (lean_loss, orthonormality_loss),
}


def loss_case(n: int, d: int, reference: str) -> Case:
    F = torch.randn(2, n, d, requires_grad=True)
    B = torch.randn(n, d, requires_grad=True)
    target_F, target_B, gamma = torch.randn(n, d), torch.randn(n, d), torch.full((n,), 0.98)

    def run(losses: Losses) -> Callable[[], object]:
        def several() -> None:
            for _ in range(LOSSES):
                value = losses[0](F, B, target_F, target_B, gamma).value + losses[1](B)
                torch.autograd.grad(value, (F, B))

        return several

    name = f"loss, N={n}, d={d}, against {reference}"
    return Case(name, "losses/s", LOSSES, run(OURS), run(REFERENCES[reference]))


def random_batch(n: int, dtype: torch.dtype = torch.float32) -> Batch:
    g = torch.Generator().manual_seed(1)
    obs, next_obs = torch.randn(2, n, OBS, generator=g, dtype=dtype)
    action = torch.rand(n, ACTION, generator=g, dtype=dtype) * 2 - 1
    terminated = torch.rand(n, generator=g) < 0.01
    later = torch.randn(n, OBS, generator=g, dtype=dtype)
    following = torch.rand(n, ACTION, generator=g, dtype=dtype) * 2 - 1
    path = torch.randn(n, PATH, OBS, generator=g, dtype=dtype)
    expert, expert_next = torch.randn(2, n // WINDOW, WINDOW, OBS, generator=g, dtype=dtype)
    return Batch(
        obs,
        action,
        next_obs,
        terminated,
        future_obs=later,
        next_action=following,
        last=terminated,
        path_obs=path,
        path_length=torch.randint(1, PATH + 1, (n,), generator=g),
        expert_obs=expert,
        expert_next_obs=expert_next,
    )


def with_latents(batch: Batch, d: int) -> Batch:
    """The batch with latents that acted, for models that act while they learn."""
    g = torch.Generator().manual_seed(3)
    return replace(batch, z=unit(torch.randn(len(batch), d, generator=g).to(batch.obs)))


def update_case(n: int, hidden: int, d: int, threads: int, model: str = "fb") -> Case:
    check_same_step(n, hidden, d, model)
    sides = [Side(side, (n, hidden, d), threads, model) for side in ("ours", "reference")]
    name = f"update of {model}, N={n}, hidden={hidden}, d={d}"
    return Case(name, "steps/min", 60 * UPDATES, sides[0].run, sides[1].run)


class Side:
    """One side of a comparison in a process of its own, which waits to be asked for updates."""

    def __init__(self, name: str, size: tuple[int, int, int], threads: int, model: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        context.Process(target=serve, args=(there, name, size, threads, model), daemon=True).start()
        self._here.recv()  # it is ready

    def run(self) -> None:
        self._here.send(UPDATES)
        self._here.recv()


def serve(asked: Connection, name: str, size: tuple[int, int, int], threads: int, model: str) -> None:
    torch.set_num_threads(threads)
    n, hidden, d = size
    learner, reference = both_sides(hidden, d, model=model)
    if name == "ours":
        keep_freed_memory()
    side, g = learner if name == "ours" else reference, torch.Generator()
    batch = with_latents(random_batch(n), d)
    g.manual_seed(0)
    asked.send(0)
    with suppress(EOFError):  # the comparison is over
        while updates := asked.recv():
            for _ in range(updates):
                side.update(batch, g)
            asked.send(updates)


def both_sides(
    hidden: int, d: int, dtype: torch.dtype = torch.float32, model: str = "fb"
) -> tuple[NetworkLearner, Reference]:
    name, settings, reference = CASES[model]
    entry = MODELS[name]
    config = entry.config(obs_dim=OBS, action_dim=ACTION, z_dim=d, hidden=hidden, **settings)
    network = entry.network(config).to(dtype)
    learner = entry.learner(network, config)
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(Layout.plain(OBS))
        states = torch.randn(2_000, OBS, generator=torch.Generator().manual_seed(4)).to(dtype)
        assert learner.quantities is not None
        learner.space.rebuild(states, learner.quantities(states), torch.Generator().manual_seed(5))
    return learner, reference(config, network, learner)


def check_same_step(n: int, hidden: int, d: int, model: str = "fb") -> None:
    """One step of both sides gives the same weights, and before that the same gradients.

    In double precision, where rounding hides nothing. Weights alone would prove little: Adam's first step is
    about ±1e-4 whatever the size of a gradient. Its first moment keeps the gradient itself, to 1e-6 of the
    largest: latents of successor features pass through the inverse of a covariance that is nearly singular.
    """
    torch.set_default_dtype(torch.float64)  # of running means and inverse covariances
    try:
        learner, reference = both_sides(hidden, d, torch.float64, model)
        batch = with_latents(random_batch(n, torch.float64), d)
        # The generators draw single precision, whatever the networks compute in.
        torch.set_default_dtype(torch.float32)
        for side in (learner, reference):
            side.update(batch, torch.Generator().manual_seed(2))
    finally:
        torch.set_default_dtype(torch.float32)
    ours = {id(p): state for adam in learner.optimisers.values() for p, state in adam.optimiser.state.items()}
    for name in reference.checked:
        theirs = getattr(reference, f"{name.removesuffix('_map')}_optimiser").state
        pairs = zip(
            getattr(learner.model, name).parameters(), getattr(reference, name).parameters(), strict=True
        )
        for p, q in pairs:
            mine, plain = ours[id(p)]["exp_avg"], theirs[q]["exp_avg"]
            torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
            # The floor is for gradients that are zero: distances do not see a bias that both ends share.
            largest = 1e-6 * float(plain.abs().max())
            torch.testing.assert_close(mine, plain, rtol=0, atol=max(largest, 1e-15))


def profile_update(n: int, hidden: int, d: int) -> dict[str, float]:
    """Shares of the time of our update, by kind of operation."""
    keep_freed_memory()
    learner, _ = both_sides(hidden, d)
    batch, g = random_batch(n), torch.Generator()
    learner.update(batch, g)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for _ in range(PROFILED):
            learner.update(batch, g)
    times: Counter[str] = Counter()
    for event in record.key_averages():
        times[kind(event.key)] += event.self_cpu_time_total
    return {name: time / times.total() for name, time in times.most_common()}


KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "layer norm": ("native_layer_norm", "native_layer_norm_backward"),
    "activations": ("tanh", "sigmoid", "tanh_backward", "clamp_min", "clamp_min_", "threshold_backward"),
    "copies": ("cat", "copy_"),
    "optimiser and targets": ("_fused_adam_", "_foreach_add_", "lerp_", "_foreach_lerp_"),
}


def kind(operation: str) -> str:
    name = operation.removeprefix("aten::")
    return next((kind for kind, names in KINDS.items() if name in names), "the rest")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats; medians are reported")
    parser.add_argument("--models", nargs="+", choices=CASES, help="the updates of these models alone")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.models is None:
        compare([update_case(*size, options.threads) for size in SIZES], options.repeats, options.json)
    family = options.models or [model for model in CASES if model != "fb"]
    compare([update_case(*SIZES[0], options.threads, m) for m in family], options.repeats, options.json)
    if options.models is not None:
        return
    compare([loss_case(*b, name) for name in REFERENCES for b in BATCHES], options.repeats, options.json)
    for n, hidden, d in SIZES:
        shares = profile_update(n, hidden, d)
        if options.json:
            print(json.dumps({"profile": [n, hidden, d], "shares": shares}))
        else:
            listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            print(f"where the time goes, N={n}, hidden={hidden}, d={d}: {listed}")


if __name__ == "__main__":
    main()
