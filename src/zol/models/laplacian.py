r"""Laplacian successor features (Wu et al. 2019; Touati et al. 2023): smooth features and what they sum to.

Features φ change little along the data's transitions and are orthonormal on its states, like the smoothest
eigenvectors of the graph Laplacian of the data's random walk. Successor features sum them along π_z:

    φ:   minimise  E[(φ(s) − φ(s'))²]  subject to  E[φ φᵀ] = I
    ψ(s, a, z) = E Σ_t γ^t φ(s_{t+1}),      ψ(s, a, z) = E[φ(s') + γ ψ(s', π_z(s'), z)]
    π_z(s) = argmax_a ψ(s, a, z)ᵀ z

The latent z stands for the reward φᵀz. In the words of the model contract F = ψ and B = C⁻¹φ with
C = E[φ φᵀ], see zol.models.network.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from zol.common import parallel
from zol.common.errors import CheckpointError
from zol.data import Batch
from zol.models.architecture import NetworkConfig
from zol.models.learner import NetworkLearner
from zol.models.losses import orthonormality_loss
from zol.models.network import Network
from zol.models.optimisation import Adam
from zol.models.parts import inverse_covariance
from zol.models.pretraining import Pretraining
from zol.models.settings import PretrainingConfig, plain_network


class LaplacianConfig(PretrainingConfig):
    """Sizes and settings of Laplacian successor features; F is ψ, B stands for the features φ."""

    orthonormality: float = Field(default=1.0, ge=0)
    """c_⊥: weight of the orthonormality of the features"""
    covariance_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the running mean of φ φᵀ follows"""


class RunningCovariance(nn.Module):
    """C: the plain mean of φ φᵀ over the first batches, then a running one."""

    value: Tensor
    batches: Tensor

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("value", torch.zeros(dim, dim))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, features: Tensor) -> Tensor:
        """Take in a batch ``[N, d]``; gives C ``[d, d]``."""
        self.batches += 1
        outer = parallel.total(features.mT @ features)[0] / (parallel.size() * len(features))
        self.value.lerp_(outer.to(self.value), max(self.rate, 1.0 / int(self.batches)))
        return self.value


class LaplacianLearner(NetworkLearner):
    """Trains features, their successor features and the actor."""

    config: LaplacianConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "smooth": "smoothness",
        "ortho": "orthonormality",
        "psi": "successor_features",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self,
        model: Network,
        config: LaplacianConfig,
        *,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        self.feature_optimiser = self.add_optimiser(
            "feature_optimiser", [model.backward_map], config.backward_learning_rate
        )
        self.covariance = RunningCovariance(model.z_dim, config.covariance_rate).to(model.whitening)

    @staticmethod
    def architecture(config: LaplacianConfig) -> NetworkConfig:
        """ψ, φ and an actor on one flat observation."""
        return plain_network(config, "laplacian", successor_features=True)

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """Any network of successor features that are not centred, with a plain actor."""
        if not network.successor_features or network.backward is None or network.centred:
            raise CheckpointError(
                f"this {network.source} model has no features of its own that Laplacian successor features "
                "could train further: a checkpoint of zol train laplacian or of td_jepa's can"
            )
        super().accept(network)

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        r"""One step on features, successor features and the actor; then the target follows.

            L_φ = mean (φ(s) − φ(s'))²  +  c_⊥ [mean_{i≠j} (φ_iᵀφ_j)² − 2 mean_i φ_iᵀφ_i]
            L_ψ = ½ Σ_P mean (ψ(s, a, z) − φ(s') − γ_i ψ̄(s', π_z(s'), z))²,   γ_i = γ (1 − terminated_i)

        The means are over rows and dimensions; ψ̄ is the mean of the slow targets; φ is a constant in L_ψ.
        """
        c, model = self.config, self.model
        model.update_statistics(batch.obs)
        model.update_statistics(batch.next_obs)
        here, there = self.view(batch.obs), self.view(batch.next_obs)
        assert model.config.backward is not None
        reads = model.config.backward.reads
        phi, next_phi = (self.run(model.backward_map, view(reads)) for view in (here, there))
        model.whitening.copy_(inverse_covariance(self.covariance.update(next_phi.detach())))
        z = self.training_latents(next_phi.detach() @ model.whitening, generator)
        with torch.no_grad():
            next_action = self.policy_action(there, z, generator)
            following = self.run(
                self.target_forward, self.forward_input(there, target=True), z, next_action
            ).mean(0)
            gamma = c.discount * (~batch.terminated).to(following.dtype)
            target = next_phi + gamma.unsqueeze(-1) * following  # [N, d]
        psi = self.run(model.forward_map, self.forward_input(here), z, batch.action)  # [P, N, d]
        smoothness = parallel.mean((phi - next_phi).square())
        orthonormality = 2 * orthonormality_loss(next_phi)
        successor_features = 0.5 * len(psi) * parallel.mean((psi - target).square())
        loss = smoothness + c.orthonormality * orthonormality + successor_features
        loss.backward()
        self.forward_optimiser.step_and_clear()
        self.feature_optimiser.step_and_clear()
        terms = {
            "loss": loss.detach(),
            "smoothness": smoothness.detach(),
            "orthonormality": orthonormality.detach(),
            "successor_features": successor_features.detach(),
        }
        terms |= self.update_actor(here, z, generator)
        self.move_targets()
        return terms

    def _parts(self) -> dict[str, nn.Module | Adam]:
        return super()._parts() | {"covariance": self.covariance}


MODEL = Pretraining(
    name="laplacian",
    title="Laplacian successor features",
    config=LaplacianConfig,
    learner=LaplacianLearner,
    presets="zol.train.presets:laplacian.toml",
    prompt="least_squares",
)
