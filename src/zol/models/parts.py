"""How the parts of a network are made from its configuration, and what they compute together."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from zol.models.architecture import Head, NetworkConfig, Tower
from zol.models.layers import Normaliser
from zol.models.nets import (
    Actor,
    BackwardMap,
    Discriminator,
    ForwardMap,
    JoinedActor,
    JoinedForwardMap,
    JoinedNoiseActor,
    NoiseConditionedActor,
    VectorField,
)

RIDGE = 1e-2  # of sphered features, relative to the mean eigenvalue; that of zol.prompt


def forward_map(config: NetworkConfig, shape: Tower, n_in: int, n_out: int) -> ForwardMap | JoinedForwardMap:
    """F, or a critic with one output."""
    if shape.joined:
        sizes = {"hidden": shape.hidden, "layers": shape.layers, "members": shape.members}
        return JoinedForwardMap(n_in, config.action_dim, config.z_dim, n_out, **sizes)
    return ForwardMap(
        n_in,
        config.action_dim,
        config.z_dim,
        n_out,
        hidden=shape.hidden,
        layers=shape.layers,
        embedding_layers=shape.embedding_layers,
        members=shape.members,
        residual=shape.residual,
    )


def encoder(shape: Head, n_in: int, n_out: int) -> BackwardMap:
    """B, or any other encoder of observations."""
    return BackwardMap(n_in, n_out, hidden=shape.hidden, layers=shape.layers, norm=shape.norm)


def actor(config: NetworkConfig, shape: Tower, n_in: int) -> Actor | JoinedActor:
    """π_z: its mean action, or a one-step flow with a noise input."""
    if shape.joined:
        sizes = {"hidden": shape.hidden, "layers": shape.layers}
        joined = JoinedNoiseActor if config.noisy_actor else JoinedActor
        return joined(n_in, config.action_dim, config.z_dim, **sizes)
    kind = NoiseConditionedActor if config.noisy_actor else Actor
    return kind(
        n_in,
        config.action_dim,
        config.z_dim,
        hidden=shape.hidden,
        layers=shape.layers,
        embedding_layers=shape.embedding_layers,
        residual=shape.residual,
    )


def vector_field(config: NetworkConfig, shape: Head, n_in: int) -> VectorField:
    """The velocity of a flow from noise to the actions of the data."""
    return VectorField(n_in, config.action_dim, hidden=shape.hidden, layers=shape.layers)


def discriminator(config: NetworkConfig, n_in: int) -> Discriminator:
    """What tells an expert's states from those of π_z."""
    assert config.discriminator is not None
    shape = config.discriminator
    return Discriminator(n_in, config.z_dim, hidden=shape.hidden, layers=shape.layers)


def normaliser(config: NetworkConfig) -> nn.Module:
    """Running statistics: one normaliser for an observation of one piece, else one per normalised field.

    The names of the weights follow from this (``normaliser.running_mean``), and checkpoints depend on them.
    """
    if config.single:
        field = config.observation[0]
        return Normaliser(field.size) if field.normalised else nn.Identity()
    return nn.ModuleDict({f.name: Normaliser(f.size) for f in config.observation if f.normalised})


def every_action(forward: Callable[..., Tensor], obs: Tensor, z: Tensor, actions: int) -> Tensor:
    """F(s, a, z) of all one-hot actions, ``[P, ..., A, d]``."""
    choices = torch.eye(actions, dtype=obs.dtype, device=obs.device)
    return forward(obs.unsqueeze(-2), z.unsqueeze(-2), choices)


def greedy_values(forward: Callable[..., Tensor], obs: Tensor, z: Tensor, actions: int) -> Tensor:
    """Q(s, a) = F(s, a, z)ᵀz of all one-hot actions, ensemble mean, ``[..., A]``."""
    return (every_action(forward, obs, z, actions).mean(0) * z.unsqueeze(-2)).sum(-1)


def inverse_root(covariance: Tensor) -> Tensor:
    """(C + εI)^(−1/2), symmetric and taken in float64, with ε a hundredth of C's mean eigenvalue.

    ε is the ridge of zol.prompt: with φ̃ = (C + εI)^(−1/2) φ, E[φ̃ r] stands for the reward of ridge
    regression on φ.
    """
    values, vectors = torch.linalg.eigh(covariance.double())
    values = values.clamp_min(0)
    scale = (values + (RIDGE * values.mean()).clamp_min(1e-30)).rsqrt()
    root: Tensor = (vectors * scale) @ vectors.mT
    return root.to(torch.get_default_dtype())


def inverse_covariance(covariance: Tensor) -> Tensor:
    """C⁻¹, taken in float64 and cut at tiny eigenvalues, so that unused features cannot explode."""
    inverse: Tensor = torch.linalg.pinv(covariance.double(), rtol=1e-6, hermitian=True)
    return inverse.to(torch.get_default_dtype())
