"""The networks of the FB family, put together from :mod:`zol.models.layers`: F, B, actors, discriminator."""

from typing import Any

import torch
from torch import Tensor, nn

from zol.models.layers import EnsembleLinear, Norm, broadcast, embedding, first_layer, flat, head, join, trunk


class ForwardMap(nn.Module):
    """F(s, a, z) for P members: towers on [s, z] and [s, a], joined as [sa, z], then a trunk."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        z_dim: int,
        out_dim: int,
        *,
        hidden: int,
        layers: int,
        embedding_layers: int = 2,
        members: int = 2,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.members = members
        self.embed_z = embedding(obs_dim + z_dim, hidden, embedding_layers, members, residual=residual)
        self.embed_sa = embedding(obs_dim + action_dim, hidden, embedding_layers, members, residual=residual)
        self.Fs = trunk(hidden, out_dim, layers, members, residual=residual)

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """``[..., D], [..., d], [..., A] → [P, ..., out]``."""
        obs, z, action = broadcast(obs, z, action)
        rows, acts = flat(obs), flat(action)
        out = of_both(self.Fs, of_both(self.embed_sa, rows, acts), self.embed_z(flat(obs, z)))
        return out.reshape(self.members, *obs.shape[:-1], out.shape[-1])


def of_both(network: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    r"""What a network says of the rows ``[x, y]``, which are not joined if only one part has gradients.

        [x, y] W + b = x W_x + (y W_y + b)

    So split, nothing is computed for the part that nobody differentiates by: an actor climbs F through the
    columns of its action and the tower that reads them, half of the first layer of the trunk.
    """
    first, *rest = network
    if not isinstance(first, EnsembleLinear) or x.requires_grad == y.requires_grad:
        out: Tensor = network(torch.cat([x, y], dim=-1))
        return out
    out = first.split(x, y)
    for layer in rest:
        out = layer(out)
    return out


class Actor(nn.Module):
    """The mean action tanh(·) of π_z: towers on [s, z] and [s], joined as [s, z], then a trunk."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        z_dim: int,
        *,
        hidden: int,
        layers: int,
        embedding_layers: int = 2,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.embed_z = embedding(obs_dim + z_dim, hidden, embedding_layers, 1, residual=residual)
        self.embed_s = embedding(obs_dim, hidden, embedding_layers, 1, residual=residual)
        self.policy = trunk(hidden, action_dim, layers, 1, residual=residual)

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        """``[..., D], [..., d] → [..., A]``."""
        # The observation tower runs before broadcasting: start states shared by many latents cost once.
        both = join(self.embed_s(obs), self.embed_z(join(obs, z)))
        return torch.tanh(self.policy(both))


class JoinedForwardMap(nn.Module):
    """F(s, a, z) for P members as one network on [s, a, z]."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        z_dim: int,
        out_dim: int,
        *,
        hidden: int,
        layers: int,
        members: int,
    ) -> None:
        super().__init__()
        self.members = members
        first = first_layer(obs_dim + action_dim + z_dim, hidden, members)
        self.net = nn.Sequential(*first, *trunk(hidden, out_dim, layers, members, residual=False))

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """``[..., D], [..., d], [..., A] → [P, ..., out]``."""
        obs, z, action = broadcast(obs, z, action)
        out: Tensor = self.net(flat(obs, action, z))
        return out.reshape(self.members, *obs.shape[:-1], out.shape[-1])


class JoinedActor(nn.Module):
    """The mean action tanh(·) of π_z as one network on [s, z]."""

    def __init__(self, obs_dim: int, action_dim: int, z_dim: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        first = first_layer(obs_dim + z_dim, hidden)
        self.net = nn.Sequential(*first, *trunk(hidden, action_dim, layers, 1, residual=False))

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        """``[..., D], [..., d] → [..., A]``."""
        return torch.tanh(self.net(join(obs, z)))


class JoinedNoiseActor(JoinedActor):
    """A one-step flow policy tanh(·)(s, z, ε) as one network on [s, ε, z]."""

    def __init__(self, obs_dim: int, action_dim: int, z_dim: int, *, hidden: int, layers: int) -> None:
        super().__init__(obs_dim + action_dim, action_dim, z_dim, hidden=hidden, layers=layers)
        self.action_dim = action_dim

    def forward(self, obs: Tensor, z: Tensor, noise: Tensor | None = None) -> Tensor:
        """``[..., D], [..., d], [..., A] → [..., A]``; no noise is ε = 0, the centre of its distribution."""
        return super().forward(join(obs, obs.new_zeros(self.action_dim) if noise is None else noise), z)


class Predictor(Actor):
    """What follows features x under an action a: towers on [x, a] and [x], joined, then a trunk; no tanh."""

    def __init__(self, dim: int, action_dim: int, **shape: Any) -> None:
        super().__init__(dim, dim, action_dim, **shape)

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        """``[..., d], [..., A] → [..., d]``."""
        out: Tensor = self.policy(join(self.embed_s(obs), self.embed_z(join(obs, z))))
        return out


class NoiseConditionedActor(Actor):
    """A one-step flow policy tanh(·)(s, z, ε): the noise ε ∈ R^A joins both towers, [s, z, ε] and [s, ε]."""

    def __init__(self, obs_dim: int, action_dim: int, z_dim: int, **shape: Any) -> None:
        # ε is as wide as an action: it widens both towers, and only its place in the rows is special.
        super().__init__(obs_dim + action_dim, action_dim, z_dim, **shape)
        self.action_dim = action_dim

    def forward(self, obs: Tensor, z: Tensor, noise: Tensor | None = None) -> Tensor:
        """``[..., D], [..., d], [..., A] → [..., A]``; no noise is ε = 0, the centre of its distribution."""
        if noise is None:
            noise = obs.new_zeros(self.action_dim)
        both = join(self.embed_s(join(obs, noise)), self.embed_z(join(obs, z, noise)))
        return torch.tanh(self.policy(both))


class VectorField(nn.Module):
    """v(s, x, t): the velocity of a flow from noise to the actions of the data."""

    def __init__(self, obs_dim: int, action_dim: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Linear(obs_dim + action_dim + 1, hidden), nn.GELU()]
        for _ in range(layers - 1):
            parts += [nn.Linear(hidden, hidden), nn.GELU()]
        self.net = nn.Sequential(*parts, nn.Linear(hidden, action_dim))

    def forward(self, obs: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """``[..., D], [..., A], [..., 1] → [..., A]``."""
        out: Tensor = self.net(join(obs, x, t))
        return out


class BackwardMap(nn.Module):
    """B(s), or any encoder of that shape: a :func:`head` and (by default) onto the sphere."""

    def __init__(self, obs_dim: int, z_dim: int, *, hidden: int, layers: int, norm: bool = True) -> None:
        super().__init__()
        self.net = nn.Sequential(*head(obs_dim, z_dim, hidden, layers), *([Norm()] if norm else []))

    def forward(self, obs: Tensor) -> Tensor:
        """``[..., D] → [..., d]``."""
        out: Tensor = self.net(obs)
        return out


class Discriminator(nn.Module):
    """D(s, z): does s look like what an expert who follows z would visit? A :func:`head` on [z, s]."""

    def __init__(self, obs_dim: int, z_dim: int, *, hidden: int, layers: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*head(z_dim + obs_dim, 1, hidden, layers))

    def forward(self, obs: Tensor, z: Tensor) -> Tensor:
        """The logit of "expert": ``[..., D], [..., d] → [...]``."""
        out: Tensor = self.trunk(join(z, obs))
        return out.squeeze(-1)

    def reward(self, obs: Tensor, z: Tensor, eps: float = 1e-7) -> Tensor:
        """log p − log(1 − p) with p = sigmoid(logit) kept inside (ε, 1 − ε), ``[...]``."""
        p = torch.sigmoid(self(obs, z)).clamp(eps, 1.0 - eps)
        return torch.log(p) - torch.log1p(-p)
