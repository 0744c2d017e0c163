"""tanh(LayerNorm(x)) of P ensemble members as one differentiable step, for the CPU.

Every tower begins with it, and written plainly it is what an update spends most time on after its matrix
products. Two things make it cheap. Each member's scale and shift ride along in torch's own LayerNorm kernels,
whose backward pass also gives their gradients. And tanh is taken as

    tanh(x) = 2σ(2x) − 1,

with the factor 2 inside scale and shift: torch's σ takes a third of the time of its tanh on a CPU. The two
differ by the rounding of numbers near 1, about 1e-7. GPUs and compilers get the plain formula.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-5  # of every LayerNorm in published models


def norm_tanh(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """tanh(weight · LayerNorm(x) + bias) of ``[P, N, h]``, or of ``[..., h]`` with weights ``[h]``."""
    h = x.shape[-1]
    # Half precision, where autocast chooses types, and compilers, which fuse by themselves, go the plain way.
    if not x.is_cpu or x.dtype != weight.dtype or torch.compiler.is_compiling():
        return torch.tanh(torch.addcmul(bias, functional.layer_norm(x, (h,), eps=EPS), weight))
    members = weight.numel() // h
    out: Tensor = _NormTanh.apply(  # type: ignore[no-untyped-call]
        x.reshape(members, -1, h), weight.reshape(members, h), bias.reshape(members, h)
    )
    return out.view_as(x)


class _NormTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        h = x.shape[-1:]
        y = torch.empty_like(x)
        statistics = []
        for member, scale, shift, out in zip(x, 2 * weight, 2 * bias, y, strict=True):
            normal, mean, reciprocal_std = torch.native_layer_norm(member, h, scale, shift, EPS)
            torch.sigmoid(normal, out=out)
            statistics += [mean, reciprocal_std]
        y.mul_(2).sub_(1)
        ctx.save_for_backward(x, weight, bias, y, *statistics)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, y, *statistics = ctx.saved_tensors
        gradient = torch.ops.aten.tanh_backward(gradient, y)
        wanted = list(ctx.needs_input_grad)
        per_member = [
            torch.ops.aten.native_layer_norm_backward(*rows, x.shape[-1:], *moments, *affine, wanted)
            for rows, moments, affine in zip(
                zip(gradient, x, strict=True),
                zip(statistics[::2], statistics[1::2], strict=True),
                zip(weight, bias, strict=True),
                strict=True,
            )
        ]
        stacked = torch.stack if len(x) > 1 else _alone
        return tuple(
            stacked(parts) if need else None
            for need, parts in zip(wanted, zip(*per_member, strict=True), strict=True)
        )


def _alone(parts: Sequence[Tensor]) -> Tensor:
    """The stack of one part, which need not be copied."""
    return parts[0].unsqueeze(0)
