"""The architecture of a network as data: everything that is needed to build one before its weights arrive.

Our own models and those of other projects are described by the same :class:`NetworkConfig`; it is stored in
every checkpoint, so that a checkpoint opens even where the code that trained it is not installed.
"""

import math
from dataclasses import fields
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from zol.common.config import Config
from zol.common.errors import unknown_name
from zol.models.base import Measure

# Far above any published model, far below what could exhaust memory: a config is not to be trusted.
WIDTH, DEPTH, MEMBERS, COLUMNS, FIELDS = 65_536, 64, 64, 1_000_000, 1_000


class Tower(Config):
    """The shape of F, a critic or an actor."""

    hidden: int = Field(gt=1, le=WIDTH)
    layers: int = Field(ge=0, le=DEPTH)
    embedding_layers: int = Field(default=2, ge=2, le=DEPTH)
    members: int = Field(default=1, ge=1, le=MEMBERS)
    residual: bool = False
    joined: bool = False
    """one network on everything that enters, instead of a tower for each pair of inputs"""
    reads: tuple[str, ...] = Field(default=(), strict=False, max_length=FIELDS)
    """fields of the observation that enter, in this order; none named means all"""


class Head(Config):
    """The shape of B, an encoder, a discriminator or a vector field."""

    hidden: int = Field(gt=0, le=WIDTH)
    layers: int = Field(ge=0, le=DEPTH)
    norm: bool = False
    """project the output onto the sphere of radius √d"""
    reads: tuple[str, ...] = Field(default=(), strict=False, max_length=FIELDS)
    """fields of the observation that enter, in this order; none named means all"""


class ObservedField(Config):
    """A named piece of the observation."""

    name: str
    size: int = Field(gt=0, le=COLUMNS)
    normalised: bool = False
    """networks see it by its running mean and variance"""


def _measure(value: Any) -> Any:
    """A measure that comes back from JSON as a dictionary."""
    if not isinstance(value, dict):
        return value
    known = [field.name for field in fields(Measure)]
    for name in value:
        if name not in known:
            raise ValueError(unknown_name("field of a measure", str(name), known))
    found: Measure = TypeAdapter(Measure).validate_python(value)
    if not math.isfinite(found.offset):
        raise ValueError(f"the offset of a measure is {found.offset}; expected a finite number")
    return found


class NetworkConfig(Config):
    """Everything needed to build a :class:`~zol.models.network.Network`.

    ``strict=False`` lets nested shapes come back from JSON as plain dictionaries and lists.
    """

    source: str
    """what trained it: a model's name such as ``fb``, or project and model such as ``metamotivo/fb_cpr``"""
    observation: tuple[ObservedField, ...] = Field(strict=False, min_length=1, max_length=FIELDS)
    """the observation, piece by piece"""
    action_dim: int = Field(gt=0, le=COLUMNS)
    z_dim: int = Field(gt=1, le=WIDTH)
    discount: float = Field(gt=0, lt=1)
    measure: Annotated[Measure, BeforeValidator(_measure)] = Measure()
    """which successor measure F and B factorise"""
    project: bool = True
    """latents live on the sphere of radius √d"""
    fourier: int = Field(default=0, ge=0, le=DEPTH)
    """frequencies of sines and cosines that networks see beside every column"""
    fourier_reads: tuple[str, ...] = Field(default=(), strict=False, max_length=FIELDS)
    """fields of the observation that have them; none named means all"""
    discrete: bool = False
    """actions are one-hot choices: the policy is greedy in F·z, and there is no actor"""
    forward: Tower = Field(strict=False)
    actor: Tower | None = Field(default=None, strict=False)
    """none where actions are discrete"""
    backward: Head | None = Field(default=None, strict=False)
    """none: B is the left encoder (symmetric TD-JEPA)"""
    left: Head | None = Field(default=None, strict=False)
    """the encoder through which F sees observations"""
    left_dim: int = Field(default=1, gt=0, le=WIDTH)
    actor_reads_left: bool = False
    noisy_actor: bool = False
    """the actor is a one-step flow with a noise input"""
    successor_features: bool = False
    """F predicts features φ, and B is C⁻¹φ"""
    forward_reads_latent: bool = True
    """F depends on z; a one-step model's F is that of the data's own behaviour, whatever z is"""
    centred: bool = False
    """the mean of the features is subtracted"""
    sphered: bool = False
    """features are made nearly orthonormal, and B is them"""
    critic: Tower | None = Field(default=None, strict=False)
    aux_critic: Tower | None = Field(default=None, strict=False)
    discriminator: Head | None = Field(default=None, strict=False)
    vector_field: Head | None = Field(default=None, strict=False)
    window: int = Field(default=1, gt=0, le=COLUMNS)
    """frames that the model's authors average for a tracking prompt"""
    action_std: float = Field(default=0.2, ge=0)
    """standard deviation of the exploration noise in training; not used to act"""

    @model_validator(mode="after")
    def _has_a_policy(self) -> Self:
        if (self.actor is None) != self.discrete:
            raise ValueError("a network has an actor exactly if its actions are not discrete")
        if self.sphered and not self.successor_features:
            raise ValueError("only the features of successor features can be sphered")
        if self.backward is None and self.left is None:
            raise ValueError("a network without a backward map needs a left encoder in its place")
        return self

    @model_validator(mode="after")
    def _reads_what_there_is(self) -> Self:
        known = [field.name for field in self.observation]
        if len(set(known)) < len(known):
            raise ValueError(f"two fields of the observation have the same name: {', '.join(known)}")
        for name in self.fourier_reads:
            if name not in known:
                raise ValueError(unknown_name("observation field", name, known))
        towers = (self.forward, self.actor, self.critic, self.aux_critic)
        heads = (self.backward, self.left, self.discriminator, self.vector_field)
        for part in (*towers, *heads):
            for name in part.reads if part is not None else ():
                if name not in known:
                    raise ValueError(unknown_name("observation field", name, known))
        return self

    @property
    def obs_dim(self) -> int:
        """D, columns of an observation."""
        return sum(field.size for field in self.observation)

    @property
    def single(self) -> bool:
        """Whether the observation is one piece, which every part sees as a whole."""
        return len(self.observation) == 1

    def columns(self) -> dict[str, slice]:
        """Where every field is in a flat observation."""
        ends = [sum(field.size for field in self.observation[: k + 1]) for k in range(len(self.observation))]
        return {f.name: slice(end - f.size, end) for f, end in zip(self.observation, ends, strict=True)}
