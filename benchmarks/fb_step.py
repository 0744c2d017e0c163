"""The Gram form of the FB loss against the N×N form: the loss alone, and the whole update.

    python -m benchmarks.fb_step [--json] [--repeats 15]

The reference update is the same code with the loss written out as N×N matrices, nothing else changed.
"""

import argparse

import torch

import zol.models.fb as fb
from benchmarks.timing import Case, compare
from zol.data import Batch
from zol.models.fb import FB, FBConfig, FBLearner
from zol.models.losses import Loss, dense_loss, gram_loss

SIZES = [(512, 256, 50), (1024, 256, 50), (1024, 1024, 50)]
OBS, ACTION = 24, 6


def dense_mean_loss(F, B, target_F, target_B, gamma) -> Loss:
    """The N×N form with the same mean target."""
    return dense_loss(F, B, target_F @ target_B.mT, gamma)


def loss_case(n: int, d: int) -> Case:
    F = torch.randn(2, n, d, requires_grad=True)
    B = torch.randn(n, d, requires_grad=True)
    target_F, target_B, gamma = torch.randn(n, d), torch.randn(n, d), torch.full((n,), 0.98)

    def run(loss):
        return lambda: torch.autograd.grad(loss(F, B, target_F, target_B, gamma).value, (F, B))

    return Case(f"loss, N={n}, d={d}", "losses/s", 1, run(gram_loss), run(dense_mean_loss))


def update_case(n: int, hidden: int, d: int) -> Case:
    config = FBConfig(obs_dim=OBS, action_dim=ACTION, z_dim=d, hidden=hidden)
    learner = FBLearner(FB(config))
    batch = Batch(
        torch.randn(n, OBS),
        torch.rand(n, ACTION) * 2 - 1,
        torch.randn(n, OBS),
        torch.zeros(n, dtype=torch.bool),
    )
    generator = torch.Generator().manual_seed(0)

    def run(loss):
        def update() -> None:
            original, fb.gram_loss = fb.gram_loss, loss
            try:
                learner.update(batch, generator)
            finally:
                fb.gram_loss = original

        return update

    return Case(f"update, N={n}, hidden={hidden}, d={d}", "steps/s", 1, run(gram_loss), run(dense_mean_loss))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--repeats", type=int, default=15, help="interleaved repeats; medians are reported")
    options = parser.parse_args()
    cases = [loss_case(n, d) for n, d in dict.fromkeys((n, d) for n, _, d in SIZES)]
    cases += [update_case(*size) for size in SIZES]
    compare(cases, options.repeats, options.json)


if __name__ == "__main__":
    main()
