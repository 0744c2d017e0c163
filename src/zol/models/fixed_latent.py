r"""An actor whose latent stays the same, as in a rollout: what does not depend on the state is computed once.

The first layers of both towers read the same observation, and one of them also the latent,

    W_s s + b_s,      W_z [s, z] + b_z = W_zs s + (W_zz z + b_z),

so together they are one matrix product with a bias per latent. A flow acts at noise 0, so the columns that
read its noise drop out. Between two steps of physics every kernel
counts: tanh(y) = 2σ(2y) − 1, because torch's sigmoid takes a third of the time of its tanh, and the layer
that follows takes up the rest, W (2σ − 1) + b = 2W σ + (b − W 1).

Actions equal those of the actor up to the order of float32 sums (below 1e-6).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.models.fused import EPS
from zol.models.layers import NormTanh
from zol.models.nets import Actor, NoiseConditionedActor

Layer = tuple[Tensor, Tensor]  # transposed weight [in, out] and bias


def fix_latent(actor: Actor, z: Tensor) -> Callable[[Tensor], Tensor]:
    """The actor as a function of observations ``[..., D]`` alone, for latents ``[..., d]``; no gradients.

    Actors of the simple family are rearranged, from the weights that they have now; others are called as they
    are.
    """
    if type(actor) in (Actor, NoiseConditionedActor) and isinstance(actor.embed_s[1], NormTanh):
        return FixedLatentActor(actor, z)
    return lambda obs: actor(obs, z)


class FixedLatentActor:
    """The rearranged actor of N latents ``[..., d]``."""

    @torch.no_grad()
    def __init__(self, actor: Actor, z: Tensor) -> None:
        state, norm_s, tail_s = _open(actor.embed_s)
        both, norm_z, tail_z = _open(actor.embed_z)
        obs_dim, rows = both.in_features - z.shape[-1], z.reshape(-1, z.shape[-1])
        if isinstance(actor, NoiseConditionedActor):
            obs_dim -= actor.action_dim  # the last columns of both towers read the noise
        from_z = functional.linear(rows, both.weight[:, obs_dim : obs_dim + z.shape[-1]], both.bias)
        self._first = torch.cat(
            [state.weight[:, :obs_dim], both.weight[:, :obs_dim]]
        ).mT.contiguous()  # [D, 2h]
        self._bias = torch.cat([state.bias.expand_as(from_z), from_z], dim=-1)  # [N, 2h]
        self._scale = 2 * torch.stack([norm_s.weight, norm_z.weight])
        self._shift = 2 * torch.stack([norm_s.bias, norm_z.bias])
        self._hidden = torch.empty_like(self._bias)  # memory that is used anew by every call
        self._joined = self._bias.new_empty(len(rows), 2 * len(tail_s[-1][1]))
        self._towers = list(zip(self._joined.chunk(2, dim=-1), (tail_s, tail_z), strict=True))
        *self._trunk, self._last = _layers(actor.policy)

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """π_z(s), ``[..., A]``, for observations ``[..., D]`` of the latents' leading dimensions."""
        x = torch.addmm(self._bias, obs.reshape(-1, obs.shape[-1]), self._first, out=self._hidden)
        x = x.view(len(x), 2, -1)  # the two towers
        x = functional.layer_norm(x, x.shape[-1:], eps=EPS)
        torch.addcmul(self._shift, x, self._scale, out=x).sigmoid_()
        for k, (half, (*before, (weight, bias))) in enumerate(self._towers):
            torch.addmm(bias, _relu_layers(x[:, k], before), weight, out=half)
        weight, bias = self._last
        x = torch.addmm(bias, _relu_layers(self._joined.relu_(), self._trunk), weight).tanh_()
        return x.view(*obs.shape[:-1], -1)


def _open(tower: nn.Sequential) -> tuple[nn.Linear, NormTanh, list[Layer]]:
    """A tower's first layer, its norm, and the ReLU layers that follow the tanh."""
    first, norm = tower[0], tower[1]
    assert isinstance(first, nn.Linear)
    assert isinstance(norm, NormTanh)
    (weight, bias), *others = _layers(tower)[1:]
    return first, norm, [(2 * weight, bias - weight.sum(0)), *others]  # of σ instead of tanh


def _layers(part: nn.Sequential) -> list[Layer]:
    return [(layer.weight.detach().mT, layer.bias.detach()) for layer in part if isinstance(layer, nn.Linear)]


def _relu_layers(x: Tensor, layers: list[Layer]) -> Tensor:
    for weight, bias in layers:
        x = torch.addmm(bias, x, weight).relu_()
    return x
