"""The Gram form of the FB loss against two N×N forms: the loss alone, and the whole update.

    python -m benchmarks.fb_step [--json] [--repeats 15]

``published``: N×N matrices and a Boolean off-diagonal mask that selects the entries to square, as FB was
first published; the orthonormality loss likewise. ``lean``: our own N×N path (``dense_loss``), which squares
everything and takes the diagonal off; it serves pessimistic targets. Nothing else differs between updates.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

import zol.models.fb as fb
from benchmarks.timing import Case, compare
from zol.data import Batch
from zol.models.fb import FB, FBConfig, FBLearner
from zol.models.losses import Loss, dense_loss, gram_loss, orthonormality_loss

SIZES = [(512, 256, 50), (1024, 256, 50), (1024, 1024, 50)]
OBS, ACTION = 24, 6
LOSSES = 10  # per measurement: a single one takes a millisecond, too short to time


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


def update_case(n: int, hidden: int, d: int, reference: str) -> Case:
    config = FBConfig(obs_dim=OBS, action_dim=ACTION, z_dim=d, hidden=hidden)
    learner = FBLearner(FB(config))
    batch = Batch(
        torch.randn(n, OBS),
        torch.rand(n, ACTION) * 2 - 1,
        torch.randn(n, OBS),
        torch.zeros(n, dtype=torch.bool),
    )
    generator = torch.Generator().manual_seed(0)

    def run(losses: Losses) -> Callable[[], None]:
        def update() -> None:
            fb.gram_loss, fb.orthonormality_loss = losses
            try:
                learner.update(batch, generator)
            finally:
                fb.gram_loss, fb.orthonormality_loss = OURS

        return update

    name = f"update, N={n}, hidden={hidden}, d={d}, against {reference}"
    return Case(name, "steps/s", 1, run(OURS), run(REFERENCES[reference]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repeats; medians are reported")
    options = parser.parse_args()
    batches = dict.fromkeys((n, d) for n, _, d in SIZES)
    cases = [loss_case(n, d, name) for name in REFERENCES for n, d in batches]
    cases += [update_case(*size, name) for name in REFERENCES for size in SIZES]
    compare(cases, options.repeats, options.json)


if __name__ == "__main__":
    main()
