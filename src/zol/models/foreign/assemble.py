"""From a blueprint and a file of weights to a model: every tensor is accounted for by name and shape."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from zol.common.config import ConfigError
from zol.common.errors import CheckpointError
from zol.common.tensors import TensorFile
from zol.models.architecture import Head, NetworkConfig, Tower
from zol.models.foreign.section import Section
from zol.models.network import Network
from zol.models.parts import inverse_covariance


@dataclass(frozen=True)
class Blueprint:
    """What a format's reader makes of a config: the architecture, and where its tensors are."""

    config: NetworkConfig
    names: Mapping[str, str]
    """our name, or prefix ending in a dot → the file's"""
    dropped: tuple[str, ...] = ()
    """prefixes of tensors that training needed and test time does not"""


def tower(
    section: Section, reads: tuple[str, ...] = (), *, members: int = 2, embedding_layers: int | None = None
) -> Tower:
    """The shape of F, a critic (ensembles of two unless told) or an actor, as all three projects write it."""
    section.only(
        "name",
        "model",
        "hidden_dim",
        "hidden_layers",
        "embedding_layers",
        "num_parallel",
        "ensemble_mode",
        "input_filter",
    )
    if "ensemble_mode" in section:
        section.choice("ensemble_mode", "batch", ("batch",))
    model = section.choice("model", "simple", ("simple", "residual"))
    return Tower(
        hidden=section.integer("hidden_dim", 1024),
        layers=section.integer("hidden_layers", 1),
        embedding_layers=embedding_layers or section.integer("embedding_layers", 2),
        members=section.integer("num_parallel", members),
        residual=model == "residual",
        reads=reads,
    )


def head(section: Section, reads: tuple[str, ...] = (), *, hidden: int = 256, norm: bool = False) -> Head:
    """The shape of B, an encoder or a discriminator; ``norm`` is the default where the field is missing."""
    section.only("name", "hidden_dim", "hidden_layers", "norm", "input_filter")
    return Head(
        hidden=section.integer("hidden_dim", hidden),
        layers=section.integer("hidden_layers", 2),
        norm=section.flag("norm", norm),
        reads=reads,
    )


def is_batch_norm(section: Section) -> bool:
    """Whether a normaliser has running statistics; anything but these and the identity is refused.

    Images are scaled by a normaliser of their own, which must not be mistaken for the identity.
    """
    section.only("name", "momentum", "eps")
    known = ("IdentityNormalizerConfig", "BatchNormNormalizerConfig")
    return section.choice("name", None, known) == "BatchNormNormalizerConfig"


def assemble(blueprint: Blueprint, weights: TensorFile) -> Network:
    """Build the networks without memory, compare them with the file, and only then read it."""
    try:
        with torch.device("meta"):
            model = Network(blueprint.config).freeze()
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{weights.path}: this architecture cannot be built: {error}") from error
    own = model.state_dict()
    theirs = {name: _their_name(name, blueprint.names) for name in own}
    shapes = {theirs[name]: tuple(tensor.shape) for name, tensor in own.items()}
    weights.require(shapes, ("_target_", *blueprint.dropped))
    state = {name: weights.read(theirs[name], tensor.dtype) for name, tensor in own.items()}
    model.load_state_dict(state, assign=True)
    if blueprint.config.successor_features:
        _invert_covariance(model, weights)
    return model


def _their_name(ours: str, names: Mapping[str, str]) -> str:
    for prefix, theirs in names.items():
        if ours == prefix or (prefix.endswith(".") and ours.startswith(prefix)):
            return theirs + ours.removeprefix(prefix)
    raise AssertionError(f"no reader says where '{ours}' is stored")


def _invert_covariance(model: Network, weights: TensorFile) -> None:
    """The file stores E[φφᵀ] of uncentred features; the model needs the inverse of what it uses."""
    covariance = model.whitening.double()
    if model.config.centred:
        centre = model.centre.double()
        covariance = covariance - torch.outer(centre, centre)
    try:
        inverse = inverse_covariance((covariance + covariance.mT) / 2)
    except RuntimeError as error:
        raise CheckpointError(
            f"the feature covariance in {weights.path} cannot be inverted: {error}"
        ) from error
    if not bool(torch.isfinite(inverse).all()):
        raise CheckpointError(f"the feature covariance in {weights.path} has no finite inverse")
    model.whitening = inverse


def described(error: ConfigError, where: str) -> CheckpointError:
    """A limit of our own config, broken by somebody's file, as an error about that file."""
    return CheckpointError(f"{where} describes a model that cannot be: {error}")
