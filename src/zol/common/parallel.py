"""Several processes that take the very step one process would take on their batches together.

Each process holds the whole model and its own rows of the *global* batch. A loss over all pairs of rows is
not the mean of the processes' losses, but it is a function of sums over rows (zol.models.losses), so

    L = g(S),  S = Σ_r S_r(θ)   ⇒   dL/dθ = Σ_r (∂g/∂S) ∂S_r/∂θ:

:func:`total` sums S over processes and passes ∂g/∂S back unchanged, then :func:`add_gradients` sums the
gradients. What a training loop has to do, in one process or in many:

    with parallel.processes("cpu") as device:          # joins torchrun's group, if torchrun started us
        rows = torch.randint(len(dataset), (batch_size,), generator=generator)  # of the global batch
        batch = dataset.take(parallel.share(rows).numpy()).to(device)           # read only our own
        learner.update(batch, generator)               # same metrics, same weights afterwards everywhere
        if parallel.is_main():                         # files, logs and bars belong to one process
            save()

The generator is seeded alike everywhere and always drawn from for the global batch, of which a process keeps
its rows. Generators therefore stay in step: one saved state resumes any number of processes, and the number
of processes changes a run by rounding only.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from zol.common.errors import DataError


@contextmanager
def processes(device: str | torch.device = "cpu") -> Iterator[torch.device]:
    """Join the process group that torchrun prepared and leave it at the end; do nothing without torchrun.

    Gives the device to train on: with ``"cuda"`` each process of a machine takes a GPU of its own.
    Communication is NCCL between GPUs and gloo between CPUs.
    """
    device = torch.device(device)
    if not distributed.is_available() or not distributed.is_torchelastic_launched():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        distributed.destroy_process_group()


def size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _together() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if _together() else 0


def is_main() -> bool:
    """Whether this is the process that writes files."""
    return rank() == 0


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def share(rows: Tensor) -> Tensor:
    """This process's rows of a global batch; processes take equal, consecutive shares."""
    n, rest = divmod(len(rows), size())
    if rest:
        raise DataError(
            f"a batch of {len(rows)} rows cannot be shared evenly by {size()} processes: "
            f"choose a batch_size that {size()} divides"
        )
    return rows[rank() * n : (rank() + 1) * n]


def total(*parts: Tensor) -> tuple[Tensor, ...]:
    """Each tensor summed over all processes, in one message. Gradients pass through unchanged (see above)."""
    if size() == 1:
        return parts
    flat: Tensor = _Total.apply(torch.cat([part.reshape(-1) for part in parts]))  # type: ignore[no-untyped-call]
    pieces = flat.split([part.numel() for part in parts])
    return tuple(piece.view_as(part) for piece, part in zip(pieces, parts, strict=True))


def mean(x: Tensor) -> Tensor:
    """The mean over all entries of all processes."""
    return total(x.sum())[0] / (size() * x.numel())


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of their numbers; differentiable."""
    if size() == 1:
        return rows
    out: Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return out


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients over processes, in one message: the gradient of the global loss."""
    if size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    pieces = flat.split([gradient.numel() for gradient in gradients])
    for gradient, piece in zip(gradients, pieces, strict=True):
        gradient.copy_(piece.view_as(gradient))


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        out = local.clone()
        distributed.all_reduce(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        out = rows.new_empty(size() * len(rows), *rows.shape[1:])
        distributed.all_gather_into_tensor(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # Other processes' losses look at our rows too.
        gradient = gradient.clone()
        distributed.all_reduce(gradient)
        return share(gradient)
