r"""Successor features of any features (Dayan 1993; Barreto et al. 2017; Borsa et al. 2019; Touati et al.).

Features φ are learned by a loss of their own (zol.models.feature_losses), or given; successor features sum
them along the policy of every latent:

    ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}),      ψ(s, a, z) = E[φ(s') + γ ψ(s', π_z(s'), z)]
    π_z(s) = argmax_a ψ(s, a, z)ᵀ z

The latent z stands for the reward φᵀz. In the words of the model contract F = ψ and B = C⁻¹φ with
C = E[φ φᵀ], see zol.models.network. With ``centred`` the mean of the features is subtracted wherever they
are used; such features cannot express a constant, which ``measure.offset`` puts back.

With ``sphered`` the features are φ̃ = (C + εI)^(−1/2) φ. ψ̃ = (C + εI)^(−1/2) ψ and z̃ = (C + εI)^(1/2) z say
the same, ψ̃ᵀz̃ = ψᵀz, so that nothing is lost or gained in what can be expressed. What changes is what an error
costs: the loss of ψ is a mean over dimensions, and a latent that stands for one state puts its weight on
directions in which φ varies little. If features have very different variances, as HILP's have, ψ is wrong
where it matters. Training latents follow: goals are φ̃(s'), and a reward is prompted by E[φ̃ r], which is ridge
regression on φ.

Universal successor features in the sense of Borsa et al. are the case of given features: ``identity`` takes
the normalised observation itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from zol.common import parallel
from zol.common.errors import CheckpointError
from zol.data import Batch, BatchSpec
from zol.models.architecture import NetworkConfig
from zol.models.base import CENTRED, model_hash
from zol.models.feature_base import FeatureLoss
from zol.models.feature_losses import FEATURES, FeatureName
from zol.models.layers import unit
from zol.models.learner import NetworkLearner
from zol.models.losses import pessimistic
from zol.models.network import Network
from zol.models.parts import inverse_covariance, inverse_root
from zol.models.pretraining import Pretraining
from zol.models.settings import PretrainingConfig, plain_network


class RunningMean(nn.Module):
    """The plain mean of what is seen in the first batches, then a running one."""

    value: Tensor
    batches: Tensor

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("value", torch.zeros(shape))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, total: Tensor, rows: int) -> Tensor:
        """Take in the sum over a batch of ``rows`` rows (of this process); gives the mean."""
        self.batches += 1
        mean = parallel.total(total)[0] / (parallel.size() * rows)
        self.value.lerp_(mean.to(self.value), max(self.rate, 1.0 / int(self.batches)))
        return self.value


class RunningCovariance(RunningMean):
    """C: the mean of φ φᵀ."""

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__((dim, dim), rate)

    @torch.no_grad()
    def see(self, features: Tensor) -> Tensor:
        """Take in a batch ``[N, d]``; gives C ``[d, d]``."""
        return self.update(features.mT @ features, len(features))


class FeatureConfig(PretrainingConfig):
    """What losses of features need beside the sizes; F is ψ, B stands for the features φ."""

    centred: bool = False
    """subtract the mean of the features"""
    orthonormality: float = Field(default=1.0, ge=0)
    """c_⊥: weight of the orthonormality of the features, where their loss has such a term"""
    covariance_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the running means of φ φᵀ and φ follow"""
    sphered: bool = False
    """sum (C + εI)^(−1/2) φ in place of φ, so that all its directions count alike. Not published"""
    pessimism: float = Field(default=0.0, ge=0)
    """of the target successor features"""
    future_discount: float = Field(default=0.99, gt=0, lt=1)
    """with which the later states are drawn that some losses look at"""
    feature_discount: float = Field(default=0.98, gt=0, lt=1)
    """γ of the values of goals that HILP's and ICVF's features learn"""
    feature_target_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the slow copies follow that feature losses bootstrap from"""
    random_goals: float = Field(default=0.375, ge=0, le=1)
    """share of goals that are states of other episodes, for losses that have goals"""
    expectile: float = Field(default=0.5, gt=0, lt=1)
    """of HILP's value; above one half it believes the better outcomes"""
    intention_expectile: float = Field(default=0.9, gt=0, lt=1)
    """of ICVF's value"""
    same_goals: float = Field(default=0.5, ge=0, le=1)
    """share of ICVF's goals that are their intentions"""
    dynamics_horizon: int = Field(default=5, ge=1)
    """H: steps that RLDP predicts one after another"""
    hindsight: float = Field(default=0.0, ge=0, le=1)
    """share of training latents that are directions to a later state of the row's own episode: cloning then
    shows the actor what the data did when they went that way"""

    added = PretrainingConfig.added | {
        "intention_expectile",
        "same_goals",
        "dynamics_horizon",
        "hindsight",
        "sphered",
    }


class SuccessorFeaturesConfig(FeatureConfig):
    """Sizes and settings of successor features."""

    features: FeatureName = "laplacian"
    """how the features are learned, or which ones are given"""


def centred_network(config: Any, source: str, *, sphered: bool = False) -> NetworkConfig:
    """The architecture of successor features, centred if the settings say so."""
    more = {"centred": True, "measure": CENTRED} if config.centred else {}
    return plain_network(config, source, successor_features=True, sphered=sphered, **more)


class SuccessorFeaturesLearner(NetworkLearner):
    """Trains features, their successor features and the actor."""

    config: Any
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "phi": "features",
        "psi": "successor_features",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self, model: Network, config: Any, *, autocast: torch.dtype | None = None, compiled: bool = False
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        d, rate = model.z_dim, config.covariance_rate
        self.covariance = RunningCovariance(d, rate)
        self.add_helper("covariance", self.covariance)
        self.mean = RunningMean((d,), rate) if model.config.centred else None
        if self.mean is not None:
            self.add_helper("mean", self.mean)
        self.spread = RunningCovariance(d, rate) if model.config.sphered else None
        if self.spread is not None:
            self.add_helper("spread", self.spread)
        # Networks that only the loss needs begin with weights of their own, another set for another seed.
        generator = torch.Generator().manual_seed(int(model_hash(model)[:12], 16))
        self.features: FeatureLoss = FEATURES[self.feature_name(config)](self, generator)

    @classmethod
    def feature_name(cls, config: Any) -> str:
        """Which features these settings ask for."""
        return str(config.features)

    @property
    def pessimism(self) -> float:
        """Of the target successor features."""
        return float(self.config.pessimism)

    @property
    def hindsight_share(self) -> float:
        """Of training latents."""
        return float(self.config.hindsight)

    @staticmethod
    def architecture(config: Any) -> NetworkConfig:
        """ψ, φ and an actor on one flat observation."""
        if config.features == "identity":
            config = config.updated(backward_layers=0, backward_norm=False)
        return centred_network(config, "successor_features", sphered=config.sphered)

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """Any network of successor features with features of its own and a plain actor."""
        if not network.successor_features or network.backward is None:
            raise CheckpointError(
                f"this {network.source} model has no features of its own that {cls.__name__} could train "
                "further: a checkpoint of successor features can"
            )
        super().accept(network)

    @property
    def batches(self) -> BatchSpec:
        """Steps or stretches, and with them what the loss of the features looks at."""
        spec = replace(self.features.batches, stretch=self.n_step, discount=self.config.discount)
        if not self.hindsight_share or spec.future:
            return spec
        return replace(spec, future=self.config.future_discount)

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        r"""One step on features, successor features and the actor; then the targets follow.

            L_ψ = ½ Σ_P mean (ψ(s, a, z) − φ(s') − γ_i ψ̄(s', π_z(s'), z))²,   γ_i = γ (1 − terminated_i)
            L   = L_φ + L_ψ

        The means are over rows and dimensions; ψ̄ is the mean of the slow targets (less their disagreement,
        with ``pessimism``); φ, less its mean where it is centred, is a constant in L_ψ. L_φ is the loss of
        the features: zol.models.feature_losses. With n steps before the bootstrap φ(s') is that of a state on
        the way, counted c times (``bootstrap``); features are learned from single steps as ever.
        """
        model = self.model
        model.update_statistics(batch.obs)
        model.update_statistics(batch.next_obs)
        here, there = self.view(batch.obs), self.view(batch.next_obs)
        single = batch.single()
        after = there if single is batch else self.view(single.next_obs)
        found = self.features(single, here, after, generator)
        with torch.no_grad():
            next_phi = found.next_phi if batch.goal is None else self.features.phi(self.view(batch.goal))
        next_phi = self._sphered(self._centred(next_phi))
        if self.spread is None:
            model.whitening.copy_(inverse_covariance(self.covariance.see(next_phi)))
        states = batch.next_obs if batch.goal is None else batch.goal
        z = self.training_latents(next_phi @ model.whitening, generator, states)
        z = self.hindsight(batch, z, generator)
        with torch.no_grad():
            next_action = self.policy_action(there, z, generator, target=True)
            following = pessimistic(
                self.run(self.target_forward, self.forward_input(there, target=True), z, next_action),
                self.pessimism,
            )
            gamma, mass = self.bootstrap(batch, following)
            summed = next_phi if mass is None else mass.unsqueeze(-1) * next_phi
            target = summed + gamma.unsqueeze(-1) * following  # [N, d]
        psi = self.run(model.forward_map, self.forward_input(here), z, batch.action)  # [P, N, d]
        successor_features = 0.5 * len(psi) * parallel.mean((psi - target).square())
        loss = successor_features if found.loss is None else found.loss + successor_features
        loss.backward()
        self.step_all_but_the_actor()
        features = torch.zeros_like(loss) if found.loss is None else found.loss
        terms = {"loss": loss.detach(), "features": features.detach()} | dict(found.terms)
        terms |= {"successor_features": successor_features.detach()}
        terms |= self.update_actor(here, z, generator, batch.action)
        self.move_targets()
        return terms

    def hindsight(self, batch: Batch, z: Tensor, generator: torch.Generator) -> Tensor:
        """Latents ``[N, d]``, a share of them replaced by Π(φ(s_{t+k}) − φ(s_t)), as ``towards`` prompts."""
        if not self.hindsight_share:
            return z
        with torch.no_grad():
            later, here = (self.features.phi(self.view(x)) for x in (self.features.later(batch), batch.obs))
            way = later - here if self.spread is None else (later - here) @ self.model.sphering
        return torch.where(self.uniform(z, generator) < self.hindsight_share, unit(way), z)

    def _centred(self, phi: Tensor) -> Tensor:
        """φ as a constant, without its mean if the network centres its features."""
        phi = phi.detach()
        if self.mean is None:
            return phi
        self.model.centre.copy_(self.mean.update(phi.sum(0), len(phi)))
        return phi - self.model.centre

    def _sphered(self, phi: Tensor) -> Tensor:
        """(C + εI)^(−1/2) φ for centred φ as a constant, if the network spheres its features."""
        if self.spread is None:
            return phi
        self.model.sphering.copy_(inverse_root(self.spread.see(phi)))
        return phi @ self.model.sphering


MODEL = Pretraining(
    name="successor_features",
    title="successor features of features by name",
    config=SuccessorFeaturesConfig,
    learner=SuccessorFeaturesLearner,
    presets="zol.train.presets:successor_features.toml",
    prompt="least_squares",
)
