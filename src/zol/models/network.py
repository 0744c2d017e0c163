r"""The one module behind every model: assembled from named parts, frozen at test time or being trained.

    s = normalise(obs)              per field, running mean and variance; perhaps with Fourier features
    x = E(s)                        left encoder, optional (in TD-JEPA it is φ)
    F(s, a, z) = forward_map(x, z, a)            [P, ..., d]
    B(s)       = backward_map(s)                 forward–backward models
    π_z(s)     = actor(x or s, z), or for discrete actions the greedy choice argmax_a F(s, a, z)ᵀz

An observation is always one flat tensor with a named layout; every part reads its own fields of it.

**Successor-feature models** (HILP, TD-JEPA, Laplacian) learn ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}) for features φ
instead of a factorised measure. With C = E_ρ[φ φᵀ] they fit the same contract as

    F = ψ,     B(s) = C⁻¹ φ(s),

because (1 − γ) ψᵀC⁻¹φ(s) is the projection of the true density ratio onto the span of φ: E_ρ[w φ] =
(1 − γ) μ holds exactly, so E_ρ[w r] = J for every reward in that span, and only for those. The prompt
E_ρ[B r] = C⁻¹E_ρ[φ r] is then least squares, which is how these models are prompted. C comes with the
checkpoint (a running mean over training data); :meth:`Network.whiten_on` replaces it by that of your
sample, on which the identity then holds without error. Centred features cannot express constants, of
which every ratio has exactly one unit: ``measure.offset`` puts it back. (Exactly so if they have mean zero on
the sample; the checkpoint's running mean makes that nearly true on training data, and only there.)

**Sphered features** are φ̃ = (C + εI)^(−1/2) φ in place of φ (zol.models.successor_features says why).
Their own C is nearly the identity, so that B is φ̃ itself, and these models are prompted like FB by E[B r].
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.common.errors import DataError
from zol.common.tensors import require_tensor
from zol.fields import Field, Layout
from zol.models import parts
from zol.models.architecture import NetworkConfig, Tower
from zol.models.base import Measure
from zol.models.fixed_latent import fix_latent
from zol.models.fourier import FourierFeatures
from zol.models.layers import Normaliser, broadcast, initialise, unit

# Temperature of discrete policies relative to the range of Q: sharp, yet differentiable in z.
SOFTNESS = 0.05


class Network(nn.Module):
    """F, B, a policy for every latent, and what else a checkpoint holds. Satisfies ``zol.models.base.Model``.

    With a generator the initial weights are drawn from it. Without one they are not set: somebody loads them.
    """

    whitening: Tensor
    centre: Tensor
    sphering: Tensor

    def __init__(self, config: NetworkConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        c = self.config = config
        self._columns = c.columns()
        self.layout = Layout(
            c.obs_dim, tuple(Field(f, s.start, s.stop - s.start) for f, s in self._columns.items())
        )
        self.fourier = FourierFeatures(c.fourier)
        self._plain = FourierFeatures(0)
        # Initial weights are drawn in the order in which parts are registered: keep it.
        self.forward_map = parts.forward_map(c, c.forward, self._forward_width(), c.z_dim)
        if c.backward is not None:
            self.backward_map = parts.encoder(c.backward, self._width(c.backward.reads), c.z_dim)
        if c.actor is not None:
            self.actor = parts.actor(c, c.actor, self._actor_width(c.actor))
        if c.left is not None:
            self.left = parts.encoder(c.left, self._width(c.left.reads), c.left_dim)
        if c.vector_field is not None and c.actor is not None:
            self.vector_field = parts.vector_field(c, c.vector_field, self._actor_width(c.actor))
        if c.critic is not None:
            self.critic_map = parts.forward_map(c, c.critic, self._width(c.critic.reads), 1)
        if c.aux_critic is not None:
            self.aux_critic_map = parts.forward_map(c, c.aux_critic, self._width(c.aux_critic.reads), 1)
        if c.discriminator is not None:
            self.discriminator = parts.discriminator(c, self._width(c.discriminator.reads))
        self.normaliser = parts.normaliser(c)
        if c.successor_features:
            self.register_buffer("whitening", torch.eye(c.z_dim))
        if c.centred:
            self.register_buffer("centre", torch.zeros(c.z_dim))
        if c.sphered:
            self.register_buffer("sphering", torch.eye(c.z_dim))
        if generator is not None:
            initialise(self, generator)

    @property
    def obs_dim(self) -> int:
        """Columns of an observation."""
        return self.config.obs_dim

    @property
    def action_dim(self) -> int:
        """Columns of an action."""
        return self.config.action_dim

    @property
    def z_dim(self) -> int:
        """Size of a latent."""
        return self.config.z_dim

    @property
    def discount(self) -> float:
        """The discount of the successor measure."""
        return self.config.discount

    @property
    def measure(self) -> Measure:
        """Which successor measure F and B factorise."""
        return self.config.measure

    @property
    def features_centred(self) -> bool:
        """Whether the mean of the features is subtracted."""
        return self.config.centred

    def freeze(self) -> "Network":
        """The same network for test time: no gradients for its weights."""
        return self.requires_grad_(False).eval()

    def _width(self, reads: tuple[str, ...]) -> int:
        """Columns that a part sees when it reads these fields."""
        sizes = {name: s.stop - s.start for name, s in self._columns.items()}
        return sum(self._sines(name).width(sizes[name]) for name in reads or self._columns)

    def _sines(self, name: str) -> FourierFeatures:
        """What stands beside the columns of a field."""
        chosen = self.config.fourier_reads
        return self.fourier if not chosen or name in chosen else self._plain

    def _forward_width(self) -> int:
        return self._width(self.config.forward.reads) if self.config.left is None else self.config.left_dim

    def _actor_width(self, actor: Tower) -> int:
        return self.config.left_dim if self.config.actor_reads_left else self._width(actor.reads)

    def read(self, obs: Tensor, reads: tuple[str, ...] = ()) -> Tensor:
        """What a part that reads these fields sees of raw observations, ``[..., width]``."""
        require_tensor(obs, "observations", "skill.act(observation) takes NumPy arrays")
        if obs.shape[-1] != self.obs_dim:
            raise DataError(
                f"these observations have {obs.shape[-1]} columns, this {self.config.source} model reads "
                f"{self.obs_dim} ({', '.join(self.layout.names)})"
            )
        if self.config.single:
            whole: Tensor = self.fourier(self.normaliser(obs))
            return whole
        seen = [self._sines(name)(self._normalised(obs, name)) for name in reads or self._columns]
        return seen[0] if len(seen) == 1 else torch.cat(seen, dim=-1)

    def _normalised(self, obs: Tensor, name: str) -> Tensor:
        field = obs[..., self._columns[name]]
        assert isinstance(self.normaliser, nn.ModuleDict)
        return self.normaliser[name](field) if name in self.normaliser else field

    def update_statistics(self, obs: Tensor) -> None:
        """Move the running mean and variance of normalised fields towards those of a batch ``[N, D]``."""
        if isinstance(self.normaliser, Normaliser):
            self.normaliser.update(obs)
        elif isinstance(self.normaliser, nn.ModuleDict):
            for name, normaliser in self.normaliser.items():
                normaliser.update(obs[..., self._columns[name]])  # type: ignore[operator]

    def _left(self, obs: Tensor) -> Tensor:
        """What F sees: the left encoding, or the observation itself."""
        c = self.config
        if c.left is None:
            return self.read(obs, c.forward.reads)
        out: Tensor = self.left(self.read(obs, c.left.reads))
        return out

    def regressors(self, obs: Tensor) -> Tensor:
        """φ(s), the features that rewards are regressed on, ``[..., d]``; for FB models B itself."""
        c = self.config
        b = c.backward
        phi = self._left(obs) if b is None else self.backward_map(self.read(obs, b.reads))
        phi = phi - self.centre if c.centred else phi
        return phi @ self.sphering if c.sphered else phi

    def backward(self, obs: Tensor) -> Tensor:
        """B(s), ``[..., d]``: the backward map, or C⁻¹φ(s) of a successor-feature model."""
        phi = self.regressors(obs)
        return phi @ self.whitening if self.config.successor_features else phi

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z), ``[P, ..., d]``. Discrete actions may be probabilities: F is their expectation."""
        seen = self._left(obs)
        if self.config.discrete:
            every = parts.every_action(self._F, seen, z, self.action_dim)
            return torch.einsum("p...ad,...a->p...d", every, action)
        return self._F(seen, z, action)

    def _F(self, seen: Tensor, z: Tensor, action: Tensor) -> Tensor:
        out: Tensor = self.forward_map(seen, self.forward_latent(z), action)
        return out

    def forward_latent(self, z: Tensor) -> Tensor:
        """The latent as F sees it: zeros where F does not depend on it."""
        return z if self.config.forward_reads_latent else 0 * z

    def act(self, obs: Tensor, z: Tensor, noise: Tensor | None = None) -> Tensor:
        """The mean action of π_z, ``[..., A]``; for discrete actions their (sharp) probabilities.

        A flow actor acts at noise 0 unless given some.
        """
        require_tensor(z, "latents", "pass latent.z, or use skill.act(observation)")
        c = self.config
        if noise is not None and not c.noisy_actor:
            raise DataError(f"the actor of this {c.source} model has no noise input: act(obs, z)")
        if c.discrete:
            Q = parts.greedy_values(self._F, self._left(obs), z, self.action_dim)
            reach = (Q.amax(-1, keepdim=True) - Q.amin(-1, keepdim=True)).detach()
            return torch.softmax(Q / (SOFTNESS * reach).clamp_min(1e-8), dim=-1)
        seen = self._actor_input(obs)
        out: Tensor = self.actor(seen, z) if noise is None else self.actor(seen, z, noise)
        return out

    @torch.no_grad()
    def sample(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        """a ~ π_z(s), ``[..., A]``: a flow of fresh noise, or the mean action with the noise of training.

        A plain actor's noise has the standard deviation ``action_std``, without the clip that training has,
        as in the reference implementations; discrete actions are one-hot rows drawn by their probabilities.
        """
        if self.config.noisy_actor:
            return self.act(obs, z, self._noise(obs, z, generator))
        action = self.act(obs, z)
        if self.config.discrete:
            rows = torch.multinomial(action.flatten(0, -2), 1, generator=generator)
            return functional.one_hot(rows.view(action.shape[:-1]), self.action_dim).to(action)
        return (action + self.config.action_std * self._noise(obs, z, generator)).clamp(-1.0, 1.0)

    def _noise(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        lead = broadcast(obs[..., :1], z[..., :1])[0].shape[:-1]
        return torch.randn(*lead, self.action_dim, generator=generator, device=generator.device).to(obs)

    def _actor_input(self, obs: Tensor) -> Tensor:
        c = self.config
        assert c.actor is not None
        return self._left(obs) if c.actor_reads_left else self.read(obs, c.actor.reads)

    def at(self, z: Tensor) -> Callable[[Tensor], Tensor]:
        """π_z as a function of observations alone, for latents that stay as in a rollout; no gradients."""
        if self.config.discrete:
            return lambda obs: self.act(obs, z)
        action = fix_latent(self.actor, z)
        return lambda obs: action(self._actor_input(obs))

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
        out: Tensor = self.get_submodule(f"{name}_map")(self.read(obs, shape.reads), z, action)
        return out.squeeze(-1)

    def discriminate(self, obs: Tensor, z: Tensor) -> Tensor:
        """The discriminator's logit that s is what an expert following z would visit, ``[...]``."""
        shape = self.config.discriminator
        if shape is None:
            raise DataError(f"a {self.config.source} model has no discriminator")
        out: Tensor = self.discriminator(self.read(obs, shape.reads), z)
        return out

    def whiten_on(self, obs: Tensor) -> None:
        """Take C = E[φφᵀ] from a sample ``[N, D]`` of next states instead of from the checkpoint."""
        if not self.config.successor_features:
            raise DataError(f"a {self.config.source} model learns a measure, not features: nothing to whiten")
        with torch.no_grad():
            phi = self.regressors(obs).double()
            self.whitening.copy_(parts.inverse_covariance(phi.mT @ phi / len(phi)))
