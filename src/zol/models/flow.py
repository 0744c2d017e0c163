r"""Flows from noise to actions: conditional flow matching, and Euler steps along what it learned.

A vector field v(x, t) carries noise ε ~ N(0, I) at t = 0 to an action at t = 1. It is fitted to straight
lines between noise and the actions of the data (Lipman et al. 2023),

    x_t = (1 − t) ε + t a,      loss = E_{t, ε, (s, a)} ‖ v(s, x_t, t) − (a − ε) ‖²,      t ~ U[0, 1]

whose minimiser carries noise to the distribution of actions in the batches: the behaviour β(a|s) of the data,
or w(s, a) β(a|s) up to a constant where batches are drawn with weights w. Sampling is K Euler steps of 1/K.

The functions take any field of (x, t), so that a field that also reads a latent can be fitted and followed in
the same way; :class:`ActionFlow` is the one that reads states alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from zol.models.layers import initialise
from zol.models.nets import VectorField

Field = Callable[[Tensor, Tensor], Tensor]
"""v(x, t): places ``[..., A]`` and times ``[..., 1]`` → velocities ``[..., A]``"""


def flow_matching_loss(field: Field, action: Tensor, generator: torch.Generator) -> Tensor:
    """The mean of ‖v(x_t, t) − (a − ε)‖² over actions ``[N, A]``, with times and noise drawn anew."""
    noise = torch.randn(action.shape, generator=generator, dtype=action.dtype)
    t = torch.rand(*action.shape[:-1], 1, generator=generator, dtype=action.dtype)
    return (field((1 - t) * noise + t * action, t) - (action - noise)).square().sum(-1).mean()


def follow(field: Field, noise: Tensor, steps: int) -> Tensor:
    """Where noise ``[..., A]`` is carried by ``steps`` Euler steps, kept within [−1, 1] at the end."""
    x = noise
    for k in range(steps):
        t = x.new_full((*x.shape[:-1], 1), k / steps)
        x = x + field(x, t) / steps
    return x.clamp(-1.0, 1.0)


class ActionFlow(nn.Module):
    """A distribution of actions in every state: a vector field v(s, x, t) on normalised observations."""

    mean: Tensor
    spread: Tensor

    def __init__(
        self, obs: Tensor, action_dim: int, *, hidden: int, layers: int, generator: torch.Generator
    ) -> None:
        """``obs`` ``[N, D]`` is a sample by which observations are normalised."""
        super().__init__()
        self.register_buffer("mean", obs.mean(0))
        self.register_buffer("spread", obs.std(0) + 1e-2)
        self.field = VectorField(obs.shape[-1], action_dim, hidden=hidden, layers=layers)
        self.action_dim = action_dim
        initialise(self, generator)
        self.to(obs.dtype)

    def at(self, obs: Tensor) -> Field:
        """The field in states ``[..., D]``; their leading dimensions broadcast against those of x."""
        seen = (obs - self.mean) / self.spread
        return lambda x, t: self.field(seen, x, t)

    def forward(self, obs: Tensor, noise: Tensor, steps: int) -> Tensor:
        """Actions ``[..., A]`` for states ``[..., D]`` and noise ``[..., A]``."""
        return follow(self.at(obs), noise, steps)

    def central(self, obs: Tensor, steps: int) -> Tensor:
        """The action ``[..., A]`` that the centre of the noise, ε = 0, is carried to."""
        return self(obs, obs.new_zeros(*obs.shape[:-1], self.action_dim), steps)
