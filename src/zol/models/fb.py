r"""Forward–Backward representations (Touati & Ollivier 2021; Touati et al. 2023; Tirinzoni et al. 2025).

FB factorises the successor measure of every policy π_z with respect to the data's next states ρ,

    M^{π_z}(s, a, ds') = Σ_t γ^t Pr(s_{t+1} ∈ ds' | s, a, π_z)  ≈  F(s, a, z)ᵀ B(s') ρ(ds'),
    π_z(s) = argmax_a F(s, a, z)ᵀ z.

zol.models.fb_learner trains it. docs/fb.md lists differences from the reference code, with reasons.
"""

from collections.abc import Callable
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from zol.common.config import Config
from zol.models.base import Measure
from zol.models.fixed_latent import fix_latent
from zol.models.fourier import Waves
from zol.models.layers import Normaliser, initialise, unit
from zol.models.nets import Actor, BackwardMap, ForwardMap

# Temperature of discrete policies relative to the spread of Q: sharp, yet differentiable in z.
SOFTNESS = 0.05


class FBConfig(Config):
    """Sizes and settings of an FB model. The defaults train on a CPU; docs/fb.md lists the published ones."""

    obs_dim: int = Field(gt=0)
    """columns of an observation"""
    action_dim: int = Field(gt=0)
    """columns of an action"""
    z_dim: int = Field(default=50, gt=1)
    """d: rank of the factorisation and size of a latent"""
    discount: float = Field(default=0.98, gt=0, lt=1)
    """γ"""
    hidden: int = Field(default=256, gt=1)
    """width of F and of the actor"""
    hidden_layers: int = Field(default=1, ge=1)
    """hidden layers of F and of the actor after their towers"""
    embedding_layers: int = Field(default=2, ge=2)
    """layers of each input tower"""
    residual: bool = False
    """residual blocks instead of plain layers in F and actor"""
    backward_hidden: int = Field(default=256, gt=0)
    """width of B"""
    backward_layers: int = Field(default=2, ge=0)
    """hidden layers of B"""
    backward_norm: bool = True
    """put B on the sphere of radius √d"""
    members: int = Field(default=2, ge=1)
    """P: forward maps in the ensemble"""
    normalise_obs: bool = False
    """normalise observations by running statistics"""
    fourier: int = Field(default=0, ge=0)
    """k: frequencies of sines and cosines of every column that networks see beside it; needs normalise_obs"""
    discrete: bool = False
    """actions are one-hot choices: π_z is greedy in F·z, and no actor is trained"""

    learning_rate: float = Field(default=1e-4, gt=0)
    """of F and the actor"""
    backward_learning_rate: float = Field(default=1e-4, gt=0)
    """of B"""
    actor_learning_rate: float = Field(default=1e-4, gt=0)
    """of the actor"""
    target_rate: float = Field(default=0.01, gt=0, le=1)
    """τ: how fast the targets follow"""
    orthonormality: float = Field(default=1.0, ge=0)
    """c_⊥"""
    q_loss: float = Field(default=0.0, ge=0)
    """weight of the loss on F·z; 0 leaves it out"""
    n_step: int = Field(default=1, ge=1)
    """n: steps of data before the bootstrap, for data whose actions last as long; falls with the rates"""
    goal_share: float = Field(default=0.5, ge=0, le=1)
    """share of training latents that are B(s') of random states; the rest are uniform on the sphere"""
    pessimism: float = Field(default=0.0, ge=0)
    """of the target measure; 0.5 with two members is their minimum. Above 0 the N×N form is used"""
    actor_pessimism: float = Field(default=0.0, ge=0)
    """of the actor's Q"""
    action_std: float = Field(default=0.2, gt=0)
    """standard deviation of the noise on training actions"""
    action_noise_clip: float = Field(default=0.3, gt=0)
    """that noise is clipped to ± this"""

    @model_validator(mode="after")
    def _waves_need_a_scale(self) -> Self:
        if self.fourier and not self.normalise_obs:
            raise ValueError("fourier counts in standard deviations: set normalise_obs, too")
        return self


class FB(nn.Module):
    """The pretrained model: F, B, π_z and the observation normaliser. Satisfies ``zol.models.Model``."""

    kind = "fb"

    def __init__(self, config: FBConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        c = config
        self.config = c
        self.measure = Measure()
        shape = {"hidden": c.hidden, "layers": c.hidden_layers, "embedding_layers": c.embedding_layers}
        self.waves = Waves(c.fourier)
        seen = self.waves.width(c.obs_dim)
        self.forward_map = ForwardMap(
            seen, c.action_dim, c.z_dim, c.z_dim, members=c.members, residual=c.residual, **shape
        )
        self.backward_map = BackwardMap(
            seen, c.z_dim, hidden=c.backward_hidden, layers=c.backward_layers, norm=c.backward_norm
        )
        if not c.discrete:
            self.actor = Actor(seen, c.action_dim, c.z_dim, residual=c.residual, **shape)
        self.normaliser = Normaliser(c.obs_dim) if c.normalise_obs else nn.Identity()
        initialise(self, generator if generator is not None else torch.Generator().manual_seed(0))

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

    def read(self, obs: Tensor) -> Tensor:
        """What the networks see of observations."""
        out: Tensor = self.waves(self.normaliser(obs))
        return out

    def backward(self, obs: Tensor) -> Tensor:
        """B(s), ``[..., d]``."""
        out: Tensor = self.backward_map(self.read(obs))
        return out

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z), ``[P, ..., d]``. Discrete actions may be probabilities: F is their expectation."""
        obs = self.read(obs)
        if self.config.discrete:
            every = every_action(self.forward_map, obs, z, self.action_dim)
            return torch.einsum("p...ad,...a->p...d", every, action)
        out: Tensor = self.forward_map(obs, z, action)
        return out

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """The mean action of π_z, ``[..., A]``; for discrete actions their (sharp) probabilities."""
        obs = self.read(obs)
        if self.config.discrete:
            Q = greedy_values(self.forward_map, obs, z, self.action_dim)
            spread = (Q.amax(-1, keepdim=True) - Q.amin(-1, keepdim=True)).detach()
            return torch.softmax(Q / (SOFTNESS * spread).clamp_min(1e-8), dim=-1)
        out: Tensor = self.actor(obs, z)
        return out

    def at(self, z: Tensor) -> Callable[[Tensor], Tensor]:
        """π_z as a function of observations alone, for latents that stay as in a rollout; no gradients."""
        if self.config.discrete:
            return lambda obs: self.act(obs, z)
        action = fix_latent(self.actor, z)
        return lambda obs: action(self.read(obs))

    def project(self, z: Tensor) -> Tensor:
        """√d · z/‖z‖."""
        return unit(z)


def every_action(forward_map: Callable[..., Tensor], obs: Tensor, z: Tensor, actions: int) -> Tensor:
    """F(s, a, z) of all one-hot actions, ``[P, ..., A, d]``."""
    choices = torch.eye(actions, dtype=obs.dtype, device=obs.device)
    return forward_map(obs.unsqueeze(-2), z.unsqueeze(-2), choices)


def greedy_values(forward_map: Callable[..., Tensor], obs: Tensor, z: Tensor, actions: int) -> Tensor:
    """Q(s, a) = F(s, a, z)ᵀz of all one-hot actions, ensemble mean, ``[..., A]``."""
    return (every_action(forward_map, obs, z, actions).mean(0) * z.unsqueeze(-2)).sum(-1)
