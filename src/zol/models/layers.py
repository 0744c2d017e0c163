"""Layers of the FB family, with the parameter layout of the published checkpoints.

``P`` forward maps are trained side by side as one batched program: an ensemble layer holds weights
``[P, in, out]`` and maps ``[P, N, in] → [P, N, out]``. With P = 1 it is an ordinary layer, whose
weight is ``[out, in]``: published files use both layouts, and so do we, so that they load as they are.

Two families, as published: *simple* (linear, LayerNorm, tanh, then ReLU layers) and *residual*
(pre-norm blocks with Mish).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.common import parallel
from zol.models.fused import norm_tanh

EPS = 1e-12


def unit(x: Tensor) -> Tensor:
    """√d · x / ‖x‖, and 0 for x = 0: the sphere that latents and backward embeddings live on."""
    return math.sqrt(x.shape[-1]) * functional.normalize(x, dim=-1, eps=EPS)


class Norm(nn.Module):
    """:func:`unit` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Project onto the sphere of radius √d."""
        return unit(x)


class EnsembleLinear(nn.Module):
    """P linear layers at once."""

    def __init__(self, n_in: int, n_out: int, members: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(members, 1, n_out))

    def forward(self, x: Tensor) -> Tensor:
        """``[N, in]`` (shared input) or ``[P, N, in]`` → ``[P, N, out]``."""
        x = x.expand(self.weight.shape[0], *x.shape[-2:])
        return torch.baddbmm(self.bias, x, self.weight)

    def split(self, x: Tensor, y: Tensor) -> Tensor:
        """The map of rows ``[x, y]`` that are not joined: ``[(P,) N, k], [(P,) N, in − k] → [P, N, out]``."""
        x, y = (part.expand(self.weight.shape[0], *part.shape[-2:]) for part in (x, y))
        of_x, of_y = self.weight.split((x.shape[-1], y.shape[-1]), dim=1)
        return torch.baddbmm(torch.baddbmm(self.bias, y, of_y), x, of_x)


class EnsembleLayerNorm(nn.Module):
    """P layer norms at once."""

    def __init__(self, dim: int, members: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, dim))
        self.bias = nn.Parameter(torch.zeros(members, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension of ``[P, N, dim]`` (or of a shared ``[N, dim]``)."""
        return torch.addcmul(self.bias, functional.layer_norm(x, x.shape[-1:]), self.weight)


class NormTanh(nn.Module):
    """tanh of a layer norm, or of P of them."""

    def __init__(self, dim: int, members: int = 1) -> None:
        super().__init__()
        shape = (dim,) if members == 1 else (members, 1, dim)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        """``[P, N, dim]``, or with one member ``[..., dim]``."""
        return norm_tanh(x, self.weight, self.bias)


def linear(n_in: int, n_out: int, members: int = 1) -> nn.Module:
    """A linear layer, or P of them."""
    return nn.Linear(n_in, n_out) if members == 1 else EnsembleLinear(n_in, n_out, members)


def layer_norm(dim: int, members: int = 1) -> nn.Module:
    """A layer norm, or P of them."""
    return nn.LayerNorm(dim) if members == 1 else EnsembleLayerNorm(dim, members)


class Block(nn.Module):
    """LayerNorm, linear, optional Mish: the residual family's building block."""

    def __init__(self, n_in: int, n_out: int, members: int, *, activate: bool, skip: bool = False) -> None:
        super().__init__()
        layers = [layer_norm(n_in, members), linear(n_in, n_out, members)]
        self.mlp = nn.Sequential(*layers, *([nn.Mish()] if activate else []))
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """x + block(x), or block(x)."""
        y: Tensor = self.mlp(x)
        return x + y if self.skip else y


def first_layer(n_in: int, hidden: int, members: int = 1) -> list[nn.Module]:
    """Linear, LayerNorm, tanh: what the simple family does with raw inputs."""
    # Published files count tanh as a layer of its own, so that the next one with weights is number 3.
    return [linear(n_in, hidden, members), NormTanh(hidden, members), nn.Identity()]


def embedding(n_in: int, hidden: int, layers: int, members: int, *, residual: bool) -> nn.Sequential:
    """An input tower: n_in → hidden → … → hidden/2, ``layers`` (≥ 2) linear maps deep."""
    if layers < 2:
        raise ValueError(f"an embedding has at least 2 layers, got {layers}")
    if residual:
        middle = [Block(hidden, hidden, members, activate=True, skip=True) for _ in range(layers - 2)]
        first = Block(n_in, hidden, members, activate=True)
        return nn.Sequential(first, *middle, Block(hidden, hidden // 2, members, activate=True))
    parts = first_layer(n_in, hidden, members)
    for _ in range(layers - 2):
        parts += [linear(hidden, hidden, members), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, linear(hidden, hidden // 2, members), nn.ReLU(inplace=True))


def trunk(hidden: int, n_out: int, layers: int, members: int, *, residual: bool) -> nn.Sequential:
    """The common part after the towers: ``layers`` hidden layers and a linear output."""
    if residual:
        blocks = [Block(hidden, hidden, members, activate=True, skip=True) for _ in range(layers)]
        return nn.Sequential(*blocks, Block(hidden, n_out, members, activate=False))
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [linear(hidden, hidden, members), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, linear(hidden, n_out, members))


def broadcast(*parts: Tensor) -> list[Tensor]:
    """The tensors with their leading dimensions broadcast against each other."""
    if all(part.shape[:-1] == parts[0].shape[:-1] for part in parts):
        return list(parts)  # the usual case in training and rollouts, where overhead counts
    # Not torch.broadcast_shapes: its first call imports sympy, which takes a second.
    lead = torch.broadcast_tensors(*(part[..., :1] for part in parts))[0].shape[:-1]
    return [part.expand(*lead, part.shape[-1]) for part in parts]


def join(*parts: Tensor) -> Tensor:
    """Concatenate along the last dimension, broadcasting the leading ones."""
    return torch.cat(broadcast(*parts), dim=-1)


def flat(*parts: Tensor) -> Tensor:
    """Joined rows ``[N, …]``: ensemble layers take exactly one batch dimension."""
    joined = join(*parts)
    return joined.reshape(-1, joined.shape[-1])


def head(n_in: int, n_out: int, hidden: int, layers: int) -> list[nn.Module]:
    """Linear, LayerNorm, tanh, ``layers − 1`` × (linear, ReLU), linear; with no layers, one linear map."""
    if layers == 0:
        return [nn.Linear(n_in, n_out)]
    parts = first_layer(n_in, hidden)
    for _ in range(layers - 1):
        parts += [nn.Linear(hidden, hidden), nn.ReLU(inplace=True)]
    return [*parts, nn.Linear(hidden, n_out)]


class Normaliser(nn.Module):
    """Running mean and variance of observations; a BatchNorm without its train-mode surprises."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, dim: int, momentum: float = 0.01, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64))

    def update(self, obs: Tensor) -> None:
        """Move the statistics towards those of a batch ``[N, D]``."""
        n = parallel.size() * len(obs)
        mean = parallel.total(obs.sum(0))[0] / n
        var = parallel.total((obs - mean).square().sum(0))[0] / (n - 1)
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var, self.momentum)
        self.num_batches_tracked += 1

    def forward(self, obs: Tensor) -> Tensor:
        """(s − mean) / √(var + ε)."""
        return (obs - self.running_mean) * torch.rsqrt(self.running_var + self.eps)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights (gain 1; √2 for each ensemble member) and zero biases, as published."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, EnsembleLinear):
            for member in layer.weight:
                nn.init.orthogonal_(member, gain=math.sqrt(2.0), generator=generator)
            nn.init.zeros_(layer.bias)
