r"""Forward–Backward representations (Touati & Ollivier 2021; Touati et al. 2023; Tirinzoni et al. 2025).

FB factorises the successor measure of every policy π_z with respect to the data's next states ρ,

    M^{π_z}(s, a, ds') = Σ_t γ^t Pr(s_{t+1} ∈ ds' | s, a, π_z)  ≈  F(s, a, z)ᵀ B(s') ρ(ds'),
    π_z(s) = argmax_a F(s, a, z)ᵀ z.

With i and j running over the N rows of a batch, s'_j as the goal of column j and F̄, B̄ the slow targets:

    L = ½ mean_{i≠j} (F_iᵀB_j − γ_i F̄'_iᵀB̄_j)²  −  mean_i F_iᵀB_i
        + c_⊥ [½ mean_{i≠j} (B_iᵀB_j)² − mean_i B_iᵀB_i]
    γ_i = γ·(1 − terminated_i)

summed over ensemble members. With n steps of data before the bootstrap γ_i = γⁿ·(1 − terminated_i), F̄' is
taken where they end, the goal is a state on the way, and F_iᵀB_i counts (1 − γⁿ)/(1 − γ) times: see
zol.data.lookahead. The first line needs N² products only on paper: see zol.models.losses.

Differences from the reference code, with reasons, are listed in docs/fb.md.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from zol.config import Config
from zol.data import Batch
from zol.models import parallel
from zol.models.base import Measure
from zol.models.fixed_latent import fix_latent
from zol.models.learning import Adam, frozen, move_towards, named_state, restore_state
from zol.models.losses import dense_loss, gram_loss, orthonormality_loss, pessimistic, q_loss
from zol.models.nets import Actor, BackwardMap, ForwardMap, Normaliser, initialise, unit
from zol.models.waves import Waves

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
    """n: steps of data before the bootstrap; above 1 the data must hold their actions for about as long"""
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


class FBLearner:
    """Trains an :class:`FB`: target networks, three Adam optimisers and the update.

    ``autocast`` is the type that networks compute in (``torch.bfloat16`` on GPUs that are fast at it), while
    weights and losses keep theirs: a Gram loss is a difference of large sums. ``compiled`` fuses each
    network by ``torch.compile``. docs/benchmarks.md says when they pay.
    """

    physics = False

    def __init__(self, model: FB, *, autocast: torch.dtype | None = None, compiled: bool = False) -> None:
        self.model = model
        self.autocast = autocast
        c = model.config
        self.target_forward = deepcopy(model.forward_map).requires_grad_(False)
        self.target_backward = deepcopy(model.backward_map).requires_grad_(False)
        self.forward_optimiser = Adam(model.forward_map.parameters(), c.learning_rate)
        self.backward_optimiser = Adam(model.backward_map.parameters(), c.backward_learning_rate)
        if not c.discrete:
            self.actor_optimiser = Adam(model.actor.parameters(), c.actor_learning_rate)
        self.lookahead = (c.n_step, c.discount) if c.n_step > 1 else None
        if compiled:
            networks = (model.forward_map, model.backward_map, self.target_forward, self.target_backward)
            for network in networks if c.discrete else (*networks, model.actor):
                network.compile()

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step on F, B and the actor; then the targets follow."""
        if isinstance(self.model.normaliser, Normaliser):
            self.model.normaliser.update(batch.obs)
            self.model.normaliser.update(batch.next_obs)
        obs, next_obs = self.model.read(batch.obs), self.model.read(batch.next_obs)
        goal = next_obs if batch.goal is None else self.model.read(batch.goal)
        B = self._run(self.model.backward_map, goal)
        z = self._training_latents(B.detach(), generator)
        terms = self._update_measure(batch, obs, next_obs, goal, B, z, generator)
        if not self.model.config.discrete:
            terms |= self._update_actor(obs, z, generator)
        move_towards(self.target_forward, self.model.forward_map, self.model.config.target_rate)
        move_towards(self.target_backward, self.model.backward_map, self.model.config.target_rate)
        return terms

    def _run(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """The network's output, computed in the type of ``autocast`` and returned in that of its inputs."""
        like = inputs[0]
        with torch.autocast(like.device.type, self.autocast, enabled=self.autocast is not None):
            out: Tensor = network(*inputs)
        return out.to(like.dtype)

    def _training_latents(self, B: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform on the sphere, or B of a random next state: the latents that π_z is trained for."""
        n = parallel.size() * len(B)
        uniform = self._normal(B, generator)
        rows = parallel.share(torch.randperm(n, generator=generator, device=generator.device))
        goals = parallel.gather(B)[rows.to(B.device)]
        chosen = torch.rand(n, 1, generator=generator, device=generator.device)
        is_goal = parallel.share(chosen).to(B.device) < self.model.config.goal_share
        return unit(torch.where(is_goal, goals, uniform))

    @staticmethod
    def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal rows for ``like``: our share of those drawn for the batch of all processes."""
        n = parallel.size() * len(like)
        drawn = torch.randn(n, *like.shape[1:], generator=generator, device=generator.device)
        return parallel.share(drawn).to(like)

    def _explore(self, mean: Tensor, generator: torch.Generator) -> Tensor:
        """mean + clipped noise, kept inside (−1, 1) while the gradient passes through unchanged."""
        c = self.model.config
        noise = c.action_std * self._normal(mean, generator)
        action = mean + noise.clamp(-c.action_noise_clip, c.action_noise_clip)
        return action + (action.clamp(-1 + 1e-6, 1 - 1e-6) - action).detach()

    def _next_action(self, next_obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        if self.model.config.discrete:
            actions = self.model.action_dim
            forward_map = partial(self._run, self.model.forward_map)
            best = greedy_values(forward_map, next_obs, z, actions).argmax(-1)
            return functional.one_hot(best, actions).to(next_obs.dtype)
        return self._explore(self._run(self.model.actor, next_obs, z), generator)

    def _update_measure(
        self,
        batch: Batch,
        obs: Tensor,
        next_obs: Tensor,
        goal: Tensor,
        B: Tensor,
        z: Tensor,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        c = self.model.config
        gamma, mass = c.discount * (~batch.terminated).to(obs.dtype), None
        if batch.length is not None:
            after = c.discount ** batch.length.to(obs.dtype)  # γⁿ
            gamma, mass = after * ~batch.terminated, (1 - after) / (1 - c.discount)
        with torch.no_grad():
            next_action = self._next_action(next_obs, z, generator)
            target_F = self._run(self.target_forward, next_obs, z, next_action)  # [P, N, d]
            target_B = self._run(self.target_backward, goal)
        F = self._run(self.model.forward_map, obs, z, batch.action)
        if c.pessimism == 0.0:
            loss = gram_loss(F, B, target_F.mean(0), target_B, gamma, mass)
        else:
            target_M = pessimistic(target_F @ parallel.gather(target_B).mT, c.pessimism)
            loss = dense_loss(F, B, target_M, gamma, mass)
        orthonormality = orthonormality_loss(B)
        value = loss.value + c.orthonormality * orthonormality
        terms = loss.terms | {"orthonormality": orthonormality.detach()}
        if c.q_loss > 0:
            q = q_loss(F, B, z, target_F, gamma, c.pessimism, mass)
            value = value + c.q_loss * q
            terms["q"] = q.detach()
        value.backward()
        self.forward_optimiser.step_and_clear()
        self.backward_optimiser.step_and_clear()
        return terms | {"loss": value.detach()}

    def _update_actor(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        action = self._explore(self._run(self.model.actor, obs, z), generator)
        with frozen(self.model.forward_map):  # gradients for the action only, none for F's weights
            Q = (self._run(self.model.forward_map, obs, z, action) * z).sum(-1)  # [P, N]
        loss = -parallel.mean(pessimistic(Q, self.model.config.actor_pessimism))
        loss.backward()
        self.actor_optimiser.step_and_clear()
        return {"actor": loss.detach()}

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on."""
        for part in self._parts().values():
            if isinstance(part, Adam):
                part.scale_learning_rate(scale)

    def state_dict(self) -> dict[str, Tensor]:
        """Targets and optimiser moments, as flat named tensors."""
        return named_state(self._parts())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        restore_state(self._parts(), state)

    def _parts(self) -> dict[str, nn.Module | Adam]:
        parts: dict[str, nn.Module | Adam] = {
            "target_forward": self.target_forward,
            "target_backward": self.target_backward,
            "forward_optimiser": self.forward_optimiser,
            "backward_optimiser": self.backward_optimiser,
        }
        return parts if self.model.config.discrete else parts | {"actor_optimiser": self.actor_optimiser}
