r"""Successor features of a prior over rewards, for models that practise in a world.

Other models of the family learn a policy for every latent, most of which stand for rewards that nobody would
ask for. Here training latents are those of rewards drawn from a prior (zol.models.reward_prior): products of
ramps over a few named quantities. Features φ are learned to span these rewards (zol.models.reward_space), and

    ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}),      π_z(s) = argmax_a ψ(s, a, z)ᵀ z,

so that the model is prompted like any other one of successor features: by least squares. What it practises on
is chosen by zol.collect.practice, which fills ``batch.z``. Rewards that do not depend on the named quantities
are expressed badly: the prior is knowledge that somebody put in.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from tyro.conf import arg

from zol.common import parallel
from zol.common.errors import DataError, unknown_name
from zol.data import Batch, BatchSpec
from zol.fields import Layout, States
from zol.models.architecture import NetworkConfig
from zol.models.learner import NetworkLearner
from zol.models.losses import pessimistic
from zol.models.network import Network
from zol.models.parts import inverse_covariance
from zol.models.pretraining import Pretraining
from zol.models.reward_prior import RAMPS
from zol.models.reward_space import RewardSpace
from zol.models.settings import PretrainingConfig
from zol.models.successor_features import RunningCovariance, RunningMean, centred_network

FEATURE_ROWS = 4  # features learn from one row in so many: φ* is costly, and soon learned


class PriorFeaturesConfig(PretrainingConfig):
    """Sizes and settings; F is ψ, B stands for the features φ."""

    quantities: Annotated[tuple[str, ...], arg(metavar="[QUANTITY ...]")] = Field(default=(), strict=False)
    """named fields that rewards of the prior depend on, ``name`` or ``name:column``"""
    posture: Annotated[tuple[str, ...], arg(metavar="[QUANTITY ...]")] = Field(default=(), strict=False)
    """those quantities, two at most, that a body on its feet has much of, such as its height"""
    posture_share: float = Field(default=0.5, ge=0, le=1)
    """share of the rewards that ask for posture, mostly beside something else"""
    rewards: int = Field(default=2048, ge=2)
    """R: rewards in the pool at the end"""
    first_rewards: int = Field(default=64, ge=2)
    """rewards in the pool at the beginning"""
    reward_doubling: int = Field(default=8_000, ge=1)
    """updates in which the pool doubles"""
    whitening: float = Field(default=0.3, ge=0, le=1)
    """α: 0 lets the few directions dominate that most rewards share, 1 counts all directions alike"""
    n_step: int = Field(default=3, ge=1)
    """n: steps of data before the bootstrap"""
    q_loss: float = Field(default=1.0, ge=0)
    """weight of the loss of ψᵀz beside that of ψ"""
    pessimism: float = Field(default=0.5, ge=0)
    """of the target of ψᵀz; 0.5 with two members is their minimum"""
    actor_every: int = Field(default=2, ge=1)
    """updates of ψ per update of the actor"""
    covariance_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the running means of φ φᵀ and φ follow"""
    feature_steps: int = Field(default=500, ge=0)
    """updates of the features alone, whenever the space of rewards is built anew"""
    centred: bool = True
    """subtract the mean of the features"""
    backward_norm: bool = False
    """put φ on the sphere of radius √d"""

    @field_validator("quantities", "posture", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return tuple(given.split(",")) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _latents_are_those_of_rewards(self) -> Self:
        if self.prior_share:
            raise ValueError(
                "all latents of prior_features are those of rewards already: leave prior_share out"
            )
        return self

    @model_validator(mode="after")
    def _posture_is_known(self) -> Self:
        if not set(self.posture) <= set(self.quantities) or len(self.posture) >= RAMPS:
            raise ValueError(
                f"posture is {', '.join(self.posture)}: at most {RAMPS - 1} of the quantities "
                f"({', '.join(self.quantities) or 'none were named'})"
            )
        return self


def quantities_of(layout: Layout, names: tuple[str, ...]) -> Callable[[Tensor], Tensor]:
    """The named quantities of observations, ``[..., D] → [..., Q]``."""
    if not names:
        raise DataError(
            "a prior over rewards needs the quantities that rewards depend on: --quantities, of "
            f"{', '.join(layout.names)}"
        )
    for name in names:
        if name.partition(":")[0] not in layout.names:
            raise DataError(unknown_name("quantity of this world", name, layout.names))

    def one(states: States, name: str) -> Tensor:
        field, _, column = name.partition(":")
        values = states[field]
        if values.shape == states.obs.shape[:-1]:
            return values
        if not column.isdigit() or int(column) >= values.shape[-1]:
            raise DataError(
                f"'{field}' has {values.shape[-1]} columns: say which one is meant, such as {field}:0"
            )
        return values[..., int(column)]

    def quantities(obs: Tensor) -> Tensor:
        states = States(obs, layout)
        return torch.stack([one(states, name) for name in names], dim=-1)

    return quantities


class Counter(nn.Module):
    """How many updates there were, as a state that resumes with everything else."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class PriorFeaturesLearner(NetworkLearner):
    """Trains features, successor features and the actor for rewards of a prior."""

    config: PriorFeaturesConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "phi": "features",
        "psi": "successor_features",
        "q": "q",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self,
        model: Network,
        config: PriorFeaturesConfig,
        *,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        c, d = config, model.z_dim
        self.covariance = RunningCovariance(d, c.covariance_rate)
        self.mean = RunningMean((d,), c.covariance_rate)
        posture = [c.quantities.index(name) for name in c.posture]
        self.space = RewardSpace(
            model.obs_dim, len(c.quantities), d, c.rewards, c.whitening, posture, c.posture_share
        )
        self.updates = Counter()
        for name in ("covariance", "mean", "space", "updates"):
            self.add_helper(name, getattr(self, name))
        self.add_optimiser("feature_optimiser", [model.backward_map], c.backward_learning_rate)
        self.quantities: Callable[[Tensor], Tensor] | None = None

    @staticmethod
    def architecture(config: PriorFeaturesConfig) -> NetworkConfig:
        """ψ, φ and an actor on one flat observation."""
        return centred_network(config, "prior_features")

    def use_layout(self, layout: Layout) -> None:
        """What columns of observations mean, from which the quantities are taken."""
        self.quantities = quantities_of(layout, self.config.quantities)

    @property
    def batches(self) -> BatchSpec:
        """The n steps from every state on."""
        return BatchSpec(path=self.config.n_step)

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        r"""One step on features, successor features and the actor; then the targets follow.

            L_φ = mean ‖φ(s') − φ*(s')‖²
            y   = Σ_{k<n} γ^k φ(s_{t+k+1}) + γⁿ ψ̄(s_{t+n}, π_z(s_{t+n}), z)
            L_ψ = ½ Σ_P mean ‖ψ(s, a, z) − y‖² + ½ c Σ_P mean (ψᵀz − yᵀz)²

        φ is a constant in L_ψ, less its mean. ψ̄ is the mean of the slow targets, and in yᵀz their mean less
        their disagreement, with ``pessimism``. γⁿ is 0 where an episode ended in a terminal state. Norms sum
        over dimensions, means are over rows.
        """
        c, model = self.config, self.model
        if batch.z is None or batch.path_obs is None or batch.path_length is None or self.quantities is None:
            raise DataError(
                "this model practises in a world, which chooses its latents: zol train prior_features --world"
            )
        model.update_statistics(batch.obs)
        z, n = batch.z, batch.path_length
        last = batch.path_obs[torch.arange(len(n), device=n.device), n - 1]
        here, there = self.view(batch.obs), self.view(last)
        some = batch.next_obs[::FEATURE_ROWS]
        features = self._update_features(some, self.wanted_features(some))
        with torch.no_grad():
            discounts = c.discount ** torch.arange(c.n_step, device=n.device)
            counted = discounts * (torch.arange(c.n_step, device=n.device) < n.unsqueeze(-1))  # [N, n]
            phi = self._phi(batch.path_obs) - model.centre
            total = (phi * counted.unsqueeze(-1).to(phi.dtype)).sum(1)
            next_action = self.policy_action(there, z, generator, target=True)
            following = self.run(self.target_forward, self.forward_input(there, target=True), z, next_action)
            gamma = (c.discount**n * ~batch.terminated).to(phi.dtype)
            target = total + gamma.unsqueeze(-1) * following.mean(0)
            worst = pessimistic((following * z).sum(-1), c.pessimism)
            target_q = (total * z).sum(-1) + gamma * worst
        psi = self.run(model.forward_map, self.forward_input(here), z, batch.action)  # [P, N, d]
        vector = 0.5 * len(psi) * parallel.mean((psi - target).square().sum(-1))
        scalar = 0.5 * len(psi) * parallel.mean(((psi * z).sum(-1) - target_q).square())
        loss = vector + c.q_loss * scalar
        loss.backward()
        self.forward_optimiser.step_and_clear()
        terms = {"loss": loss.detach(), "features": features, "successor_features": vector.detach()}
        terms |= {"q": scalar.detach(), "rewards": self.space.count.to(loss.dtype)}
        if int(self.updates.count) % c.actor_every == 0:
            terms |= self.update_actor(here, z, generator, batch.action)
        self.updates.count += 1
        self.move_targets()
        return terms

    def _phi(self, obs: Tensor) -> Tensor:
        """φ(s), before its mean is subtracted."""
        backward = self.model.config.backward
        assert backward is not None
        return self.run(self.model.backward_map, self.model.read(obs, backward.reads))

    def wanted_features(self, obs: Tensor) -> Tensor:
        """φ* of observations ``[N, D]``."""
        assert self.quantities is not None
        return self.space.features(self.quantities(obs.double()).to(obs.dtype))

    def _update_features(self, next_obs: Tensor, wanted: Tensor) -> Tensor:
        """One step of φ towards φ*, and of the means; gives L_φ."""
        model = self.model
        phi = self._phi(next_obs)
        loss = parallel.mean((phi - wanted).square().sum(-1))
        loss.backward()
        self.optimisers["feature_optimiser"].step_and_clear()
        phi = phi.detach()
        model.centre.copy_(self.mean.update(phi.sum(0), len(phi)))
        model.whitening.copy_(inverse_covariance(self.covariance.see(phi - model.centre)))
        return loss.detach()

    @torch.no_grad()
    def prepare(self, obs: Tensor, generator: torch.Generator, rows: int = 512) -> None:
        """Rebuild the space of rewards on states ``[N, D]``, and fit φ to it for a while."""
        self._rebuild(obs, self._wanted_rewards(), generator)
        wanted = self.space.features(self.space.values)
        with torch.enable_grad():
            for _ in range(self.config.feature_steps):
                some = torch.randint(len(wanted), (rows,), generator=generator)
                self._update_features(self.space.obs[some], wanted[some])
        self.place()

    @torch.no_grad()
    def recall(self, obs: Tensor, generator: torch.Generator) -> None:
        """A whole pool of rewards on states ``[N, D]``, for a model that is trained already."""
        self._rebuild(obs, self.config.rewards, generator)
        self.place()

    def _rebuild(self, obs: Tensor, rewards: int, generator: torch.Generator) -> None:
        assert self.quantities is not None
        self.space.rebuild(obs, self.quantities(obs.double()).float(), generator)
        self.space.grow(rewards, generator)

    def practice_latents(self, goals: Tensor, generator: torch.Generator) -> Tensor:
        """Latents ``[N, d]`` of rewards of the pool; the ``goals`` are only counted."""
        return self.space.latents[torch.randint(int(self.space.count), (len(goals),), generator=generator)]

    @torch.no_grad()
    def place(self) -> None:
        """Set the latents of the pool as prompts with the model's own features would."""
        self.space.place(self._phi(self.space.obs))

    def grow(self, generator: torch.Generator) -> None:
        """As many rewards as there should be by now."""
        self.space.grow(self._wanted_rewards(), generator)
        self.place()

    def _wanted_rewards(self) -> int:
        c = self.config
        doublings = min(40.0, int(self.updates.count) / c.reward_doubling)
        return min(c.rewards, int(c.first_rewards * 2**doublings))


MODEL = Pretraining(
    name="prior_features",
    title="successor features of a prior over rewards, by practice",
    config=PriorFeaturesConfig,
    learner=PriorFeaturesLearner,
    presets="zol.train.presets:prior_features.toml",
    prompt="least_squares",
    online="practice",
)
