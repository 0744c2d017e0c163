r"""A frozen model assembled from named parts: what checkpoints of other projects become.

    s = normalise(obs)              per field, running mean and variance
    x = E(s)                        left encoder, optional (in TD-JEPA it is φ)
    F(s, a, z) = forward_map(x, z, a)            [P, ..., d]
    B(s)       = backward_map(s)                 forward–backward models
    π_z(s)     = actor(x or s, z)

An observation is always one flat tensor with a named layout; every part reads its own fields of it.

**Successor-feature models** (HILP, TD-JEPA) learn ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}) for features φ
instead of a factorised measure. With C = E_ρ[φ φᵀ] they fit the same contract as

    F = ψ,     B(s) = C⁻¹ φ(s),

because (1 − γ) ψᵀC⁻¹φ(s) is the projection of the true density ratio onto the span of φ: E_ρ[w φ] =
(1 − γ) μ holds exactly, so E_ρ[w r] = J for every reward in that span, and only for those. The prompt
E_ρ[B r] = C⁻¹E_ρ[φ r] is then least squares, which is how these models are prompted. C comes with the
checkpoint (a running mean over training data); :meth:`Composite.whiten_on` replaces it by that of your
sample, on which the identity then holds without error. Centred features cannot express constants, of
which every ratio has exactly one unit: ``measure.offset`` puts it back. (Exactly so if they have mean zero on
the sample; the checkpoint's running mean makes that nearly true on training data, and only there.)
"""

import torch
from pydantic import Field as Limit
from torch import Tensor, nn

from zol.common.config import Config
from zol.common.errors import DataError
from zol.fields import Field, Layout
from zol.models.base import Measure
from zol.models.layers import Normaliser, unit
from zol.models.nets import (
    Actor,
    BackwardMap,
    Discriminator,
    ForwardMap,
    NoiseConditionedActor,
    VectorField,
)
from zol.tasks import humenv

# Far above any published model, far below what could exhaust memory: a config is not to be trusted.
WIDTH, DEPTH, MEMBERS, COLUMNS = 65_536, 64, 64, 1_000_000


class Tower(Config):
    """The shape of F, a critic or an actor."""

    hidden: int = Limit(gt=1, le=WIDTH)
    layers: int = Limit(ge=0, le=DEPTH)
    embedding_layers: int = Limit(default=2, ge=2, le=DEPTH)
    members: int = Limit(default=1, ge=1, le=MEMBERS)
    residual: bool = False
    reads: tuple[str, ...] = Limit(default=(), strict=False)
    """fields of the observation that enter, in this order; none named means all"""


class Head(Config):
    """The shape of B, an encoder, a discriminator or a vector field."""

    hidden: int = Limit(gt=0, le=WIDTH)
    layers: int = Limit(ge=0, le=DEPTH)
    norm: bool = False
    reads: tuple[str, ...] = Limit(default=(), strict=False)


class Part(Config):
    """A named piece of the observation."""

    name: str
    size: int = Limit(gt=0, le=COLUMNS)
    normalised: bool = False


class CompositeConfig(Config):
    """Everything needed to build a :class:`Composite` before its weights arrive.

    ``strict=False`` lets nested shapes come back from JSON as plain dictionaries and lists.
    """

    source: str
    """project and model, such as ``metamotivo/fb_cpr``"""
    parts: tuple[Part, ...] = Limit(strict=False)
    """the observation, piece by piece"""
    action_dim: int = Limit(gt=0, le=COLUMNS)
    z_dim: int = Limit(gt=1, le=WIDTH)
    discount: float = Limit(gt=0, lt=1)
    project: bool = True
    """latents live on the sphere of radius √d"""
    forward: Tower = Limit(strict=False)
    actor: Tower = Limit(strict=False)
    backward: Head | None = Limit(default=None, strict=False)
    """none: B is the left encoder (symmetric TD-JEPA)"""
    left: Head | None = Limit(default=None, strict=False)
    left_dim: int = Limit(default=1, gt=0, le=WIDTH)
    actor_reads_left: bool = False
    noisy_actor: bool = False
    """the actor is a one-step flow with a noise input"""
    successor_features: bool = False
    centred: bool = False
    critic: Tower | None = Limit(default=None, strict=False)
    aux_critic: Tower | None = Limit(default=None, strict=False)
    discriminator: Head | None = Limit(default=None, strict=False)
    vector_field: Head | None = Limit(default=None, strict=False)
    window: int = Limit(default=1, gt=0, le=COLUMNS)
    """frames that the model's authors average for a tracking prompt"""
    action_std: float = Limit(default=0.2, ge=0)
    """standard deviation of the exploration noise in training; not used to act"""


class Composite(nn.Module):
    """A pretrained model of another project. Satisfies ``zol.models.Model``; its weights are frozen."""

    kind = "composite"
    whitening: Tensor
    centre: Tensor

    def __init__(self, config: CompositeConfig) -> None:
        super().__init__()
        c = self.config = config
        starts = [sum(p.size for p in c.parts[:i]) for i in range(len(c.parts))]
        self._slices = {p.name: slice(a, a + p.size) for p, a in zip(c.parts, starts, strict=True)}
        self.obs_dim = sum(p.size for p in c.parts)
        fields = tuple(Field(p.name, a, p.size) for p, a in zip(c.parts, starts, strict=True))
        known = (self.obs_dim, c.action_dim) == (humenv.LAYOUT.obs_dim, humenv.ACTIONS)
        self.layout = humenv.LAYOUT if known else Layout(self.obs_dim, fields)
        self.action_dim, self.z_dim, self.discount = c.action_dim, c.z_dim, c.discount
        self.measure = Measure(offset=1.0 if c.centred else 0.0)
        self.normalisers = nn.ModuleDict({p.name: Normaliser(p.size) for p in c.parts if p.normalised})
        self._build_maps()
        self._build_extras()
        if c.successor_features:
            self.register_buffer("whitening", torch.eye(c.z_dim))
        if c.centred:
            self.register_buffer("centre", torch.zeros(c.z_dim))
        self.requires_grad_(False).eval()

    def _build_maps(self) -> None:
        c = self.config
        forward_in = actor_in = self._width(c.forward.reads)
        if c.left is not None:
            self.left = BackwardMap(
                self._width(c.left.reads),
                c.left_dim,
                hidden=c.left.hidden,
                layers=c.left.layers,
                norm=c.left.norm,
            )
            forward_in = c.left_dim
        self.forward_map = _forward(c.forward, forward_in, c, c.z_dim)
        if c.backward is not None:
            b = c.backward
            self.backward_map = BackwardMap(
                self._width(b.reads), c.z_dim, hidden=b.hidden, layers=b.layers, norm=b.norm
            )
        a = c.actor
        actor_in = c.left_dim if c.actor_reads_left else self._width(a.reads)
        shape = {"hidden": a.hidden, "layers": a.layers, "embedding_layers": a.embedding_layers}
        if c.noisy_actor:
            self.actor: Actor = NoiseConditionedActor(actor_in, c.action_dim, c.z_dim, **shape)
        else:
            self.actor = Actor(actor_in, c.action_dim, c.z_dim, residual=a.residual, **shape)
        if c.vector_field is not None:
            v = c.vector_field
            self.vector_field = VectorField(actor_in, c.action_dim, hidden=v.hidden, layers=v.layers)

    def _build_extras(self) -> None:
        c = self.config
        if c.critic is not None:
            self.critic_map = _forward(c.critic, self._width(c.critic.reads), c, 1)
        if c.aux_critic is not None:
            self.aux_critic_map = _forward(c.aux_critic, self._width(c.aux_critic.reads), c, 1)
        if c.discriminator is not None:
            d = c.discriminator
            self.discriminator = Discriminator(
                self._width(d.reads), c.z_dim, hidden=d.hidden, layers=d.layers
            )

    def _width(self, reads: tuple[str, ...]) -> int:
        slices = [self._slices[name] for name in reads or self._slices]
        return sum(s.stop - s.start for s in slices)

    def _see(self, reads: tuple[str, ...], obs: Tensor) -> Tensor:
        """The normalised fields that a part reads, ``[..., width]``."""
        if obs.shape[-1] != self.obs_dim:
            raise DataError(
                f"these observations have {obs.shape[-1]} columns, this {self.config.source} model reads "
                f"{self.obs_dim} ({', '.join(self.layout.names)})"
            )
        seen = [
            self.normalisers[name](obs[..., self._slices[name]])
            if name in self.normalisers
            else obs[..., self._slices[name]]
            for name in reads or self._slices
        ]
        return seen[0] if len(seen) == 1 else torch.cat(seen, dim=-1)

    def _left(self, obs: Tensor) -> Tensor:
        c = self.config
        if c.left is None:
            return self._see(c.forward.reads, obs)
        out: Tensor = self.left(self._see(c.left.reads, obs))
        return out

    def regressors(self, obs: Tensor) -> Tensor:
        """φ(s), the features that rewards are regressed on, ``[..., d]``; for FB models B itself."""
        c = self.config
        phi: Tensor = (
            self._left(obs) if c.backward is None else self.backward_map(self._see(c.backward.reads, obs))
        )
        return phi - self.centre if c.centred else phi

    def backward(self, obs: Tensor) -> Tensor:
        """B(s), ``[..., d]``: the backward map, or C⁻¹φ(s) of a successor-feature model."""
        phi = self.regressors(obs)
        return phi @ self.whitening if self.config.successor_features else phi

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z), ``[P, ..., d]``."""
        out: Tensor = self.forward_map(self._left(obs), z, action)
        return out

    def act(self, obs: Tensor, z: Tensor, noise: Tensor | None = None) -> Tensor:
        """The mean action of π_z, ``[..., A]``; a flow actor acts at noise 0 unless given some."""
        c = self.config
        seen = self._left(obs) if c.actor_reads_left else self._see(c.actor.reads, obs)
        if noise is None:
            out: Tensor = self.actor(seen, z)
            return out
        if not c.noisy_actor:
            raise DataError(f"the actor of this {c.source} model has no noise input: act(obs, z)")
        noisy: Tensor = self.actor(seen, z, noise)
        return noisy

    def project(self, z: Tensor) -> Tensor:
        """√d · z/‖z‖, or z itself where the model was trained without a sphere."""
        return unit(z) if self.config.project else z

    def critic(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """The critic of the imitation reward, ``[P, ...]`` (FB-CPR only)."""
        return self._score("critic", self.config.critic, obs, z, action)

    def aux_critic(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """The critic of the auxiliary rewards, ``[P, ...]`` (BFM-Zero only)."""
        return self._score("aux_critic", self.config.aux_critic, obs, z, action)

    def _score(self, name: str, shape: Tower | None, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        if shape is None:
            raise DataError(f"a {self.config.source} model has no {name}")
        out: Tensor = self.get_submodule(f"{name}_map")(self._see(shape.reads, obs), z, action)
        return out.squeeze(-1)

    def discriminate(self, obs: Tensor, z: Tensor) -> Tensor:
        """The discriminator's logit that s is what an expert following z would visit, ``[...]``."""
        shape = self.config.discriminator
        if shape is None:
            raise DataError(f"a {self.config.source} model has no discriminator")
        out: Tensor = self.discriminator(self._see(shape.reads, obs), z)
        return out

    def whiten_on(self, obs: Tensor) -> None:
        """Take C = E[φφᵀ] from a sample ``[N, D]`` of next states instead of from the checkpoint."""
        if not self.config.successor_features:
            raise DataError(f"a {self.config.source} model learns a measure, not features: nothing to whiten")
        with torch.no_grad():
            phi = self.regressors(obs).double()
            self.whitening.copy_(inverse_covariance(phi.mT @ phi / len(phi)))


def inverse_covariance(covariance: Tensor) -> Tensor:
    """C⁻¹, taken in float64 and cut at tiny eigenvalues, so that unused features cannot explode."""
    inverse: Tensor = torch.linalg.pinv(covariance.double(), rtol=1e-6, hermitian=True)
    return inverse.to(torch.get_default_dtype())


def _forward(shape: Tower, n_in: int, config: CompositeConfig, n_out: int) -> ForwardMap:
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
