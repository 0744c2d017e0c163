r"""TD-JEPA (Bagatella et al. 2025): two encoders of states, each predicting what the other will see later.

φ encodes the state that policy and predictor read, ψ the state as a task sees it. Predictors learn, by
temporal differences in the latent space, what encoders will sum to along the policy of every latent:

    T_φ(φ(s), a, z) ≈ E Σ_t γ^t ψ(s_{t+1}),      T_ψ(ψ(s), a, z) ≈ E Σ_t γ^t φ(s_{t+1})
    π_z(s) = argmax_a T_φ(φ(s), a, z)ᵀ z

The latent z stands for the reward ψᵀz. In the words of the model contract F = T_φ ∘ φ and B = C⁻¹ψ with
C = E[ψ ψᵀ], see zol.models.network. T_ψ is needed for training only. The symmetric variant has one encoder,
ψ = φ, and one predictor.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from zol.common import parallel
from zol.common.errors import CheckpointError
from zol.data import Batch
from zol.models.architecture import Head, NetworkConfig
from zol.models.base import model_hash
from zol.models.layers import initialise
from zol.models.learner import NetworkLearner, View
from zol.models.losses import orthonormality_loss, pessimistic
from zol.models.nets import ForwardMap
from zol.models.network import Network
from zol.models.parts import inverse_covariance
from zol.models.pretraining import Pretraining
from zol.models.settings import PretrainingConfig, plain_network
from zol.models.successor_features import RunningCovariance


class TDJEPAConfig(PretrainingConfig):
    """Sizes and settings of TD-JEPA; F is the predictor T_φ, B stands for the task encoder ψ."""

    symmetric: bool = False
    """one encoder and one predictor"""
    encoder_dim: int = Field(default=256, gt=0)
    """size of φ(s); that of ψ(s) is z_dim, and in the symmetric variant φ has it, too"""
    encoder_hidden: int = Field(default=256, gt=0)
    """width of φ"""
    encoder_layers: int = Field(default=0, ge=0)
    """hidden layers of φ; none is one linear map"""
    encoder_orthonormality: float = Field(default=0.1, ge=0)
    """c_φ"""
    orthonormality: float = Field(default=0.1, ge=0)
    """c_ψ"""
    pessimism: float = Field(default=0.0, ge=0)
    """of the predictors' targets"""
    covariance_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the running mean of ψ ψᵀ follows"""
    whitened_goals: bool = False
    """training latents of goals are C⁻¹ψ(s') instead of ψ(s')"""


class TDJEPALearner(NetworkLearner):
    """Trains both encoders, both predictors and the actor."""

    config: TDJEPAConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "predict": "prediction",
        "ortho": "orthonormality",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self,
        model: Network,
        config: TDJEPAConfig,
        *,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        self.covariance = RunningCovariance(model.z_dim, config.covariance_rate)
        self.add_helper("covariance", self.covariance)
        self.symmetric = model.config.backward is None  # as the network says, which may be somebody else's
        if self.symmetric:
            return
        self.target_task = self.add_target("target_task", model.backward_map)
        self.task_optimiser = self.add_optimiser(
            "task_optimiser", [model.backward_map], config.backward_learning_rate
        )
        # T_ψ is no part of the model; its first weights are another set for another seed.
        c, shape = config, model.config.forward
        self.task_predictor = ForwardMap(
            c.z_dim,
            c.action_dim,
            c.z_dim,
            model.config.left_dim,
            hidden=shape.hidden,
            layers=shape.layers,
            embedding_layers=shape.embedding_layers,
            members=shape.members,
            residual=shape.residual,
        )
        initialise(self.task_predictor, torch.Generator().manual_seed(int(model_hash(model)[:12], 16)))
        self.add_helper("task_predictor", self.task_predictor)
        self.target_predictor = self.add_target("target_predictor", self.task_predictor)
        self.predictor_optimiser = self.add_optimiser(
            "predictor_optimiser", [self.task_predictor], config.learning_rate
        )

    @staticmethod
    def architecture(config: TDJEPAConfig) -> NetworkConfig:
        """T_φ on φ, ψ beside it, and an actor on φ."""
        c = config
        left = Head(hidden=c.encoder_hidden, layers=c.encoder_layers, norm=True)
        more = {"left": left, "left_dim": c.z_dim if c.symmetric else c.encoder_dim}
        network = plain_network(
            config, "td_jepa", successor_features=True, actor_reads_left=not c.discrete, **more
        )
        return network.updated(backward=None) if c.symmetric else network

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """Networks with the two encoders, or the one, of TD-JEPA."""
        if not network.successor_features or network.left is None or network.centred:
            raise CheckpointError(
                f"this {network.source} model does not have TD-JEPA's encoders: a checkpoint of zol train "
                "td_jepa, or of the td_jepa repository's own, can be trained further"
            )
        super().accept(network)

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        r"""One step on encoders, predictors and the actor; then the targets follow.

            L = mean ‖T_φ(φ(s), a, z) − ψ̄(s') − γ_i T̄_φ(φ̄(s'), a', z)‖²
              + mean ‖T_ψ(ψ(s), a, z) − φ̄(s') − γ_i T̄_ψ(ψ̄(s'), a', z)‖²
              + c_φ orth(φ(s)) + c_ψ orth(ψ(s)),        γ_i = γ (1 − terminated_i)

        The means are over rows and ensemble members; bars are slow copies, and T̄ is the mean of its members
        (less their disagreement, with ``pessimism``). a' = π_z on φ̄(s'), with noise. orth is that of
        zol.models.losses. In the symmetric variant ψ = φ, and the first and third terms are all. With n steps
        before the bootstrap ψ̄(s') and φ̄(s') are those of a state on the way, counted c times (``bootstrap``).
        """
        c, model = self.config, self.model
        model.update_statistics(batch.obs)
        model.update_statistics(batch.next_obs)
        here, there = self.view(batch.obs), self.view(batch.next_obs)
        goal = there if batch.goal is None else self.view(batch.goal)
        phi = self.forward_input(here)
        with torch.no_grad():
            next_phi = self.forward_input(there, target=True)
            goal_phi = next_phi if goal is there else self.forward_input(goal, target=True)
        if self.symmetric:
            psi, goal_psi, goals = phi, goal_phi, self.forward_input(goal).detach()
        else:
            assert model.config.backward is not None
            reads = model.config.backward.reads
            psi = self.run(model.backward_map, here(reads))
            with torch.no_grad():
                next_psi = self.run(self.target_task, there(reads))
                goal_psi = next_psi if goal is there else self.run(self.target_task, goal(reads))
                goals = self.run(model.backward_map, goal(reads))
        model.whitening.copy_(inverse_covariance(self.covariance.see(goals)))
        embedded = goals @ model.whitening if c.whitened_goals else goals
        z = self.training_latents(embedded, generator, batch.next_obs if batch.goal is None else batch.goal)
        gamma, mass = self.bootstrap(batch, phi)
        gamma = gamma.unsqueeze(-1)
        if mass is not None:
            goal_phi, goal_psi = mass.unsqueeze(-1) * goal_phi, mass.unsqueeze(-1) * goal_psi
        with torch.no_grad():
            next_action = self._slow_action(there, next_phi, z, generator)
            later = pessimistic(self.run(self.target_forward, next_phi, z, next_action), c.pessimism)
            target = goal_psi + gamma * later
        predicted = self.run(model.forward_map, phi, z, batch.action)  # [P, N, d]
        prediction = parallel.mean((predicted - target).square().sum(-1))
        orthonormality = c.encoder_orthonormality * orthonormality_loss(phi)
        if not self.symmetric:
            with torch.no_grad():
                later = pessimistic(self.run(self.target_predictor, next_psi, z, next_action), c.pessimism)
                target = goal_phi + gamma * later
            predicted = self.run(self.task_predictor, psi, z, batch.action)
            prediction = prediction + parallel.mean((predicted - target).square().sum(-1))
            orthonormality = orthonormality + c.orthonormality * orthonormality_loss(psi)
        loss = prediction + orthonormality
        loss.backward()
        self.step_all_but_the_actor()
        terms = {"loss": loss.detach(), "prediction": prediction.detach()}
        terms |= {"orthonormality": orthonormality.detach()}
        terms |= self.update_actor(here, z, generator, batch.action)
        self.move_targets()
        return terms

    def goal_latents(self, obs: Tensor) -> Tensor:
        """ψ(s), whitened if training latents are."""
        return self.model.backward(obs) if self.config.whitened_goals else self.model.regressors(obs)

    def _slow_action(self, there: View, next_phi: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        """a' ~ π_z on the slow encoding; for discrete actions the greedy choice there."""
        if self.model.config.discrete:
            return self.greedy_action(next_phi, z)
        seen = next_phi if self.model.config.actor_reads_left else self.actor_input(there)
        return self.actor.action(seen, z, generator)


MODEL = Pretraining(
    name="td_jepa",
    title="TD-JEPA: encoders that predict each other's futures",
    config=TDJEPAConfig,
    learner=TDJEPALearner,
    presets="zol.train.presets:td_jepa.toml",
    prompt="least_squares",
)
