r"""Forward–Backward representations (Touati & Ollivier 2021; Touati et al. 2023; Tirinzoni et al. 2025).

FB factorises the successor measure of every policy π_z with respect to the data's next states ρ,

    M^{π_z}(s, a, ds') = Σ_t γ^t Pr(s_{t+1} ∈ ds' | s, a, π_z)  ≈  F(s, a, z)ᵀ B(s') ρ(ds'),
    π_z(s) = argmax_a F(s, a, z)ᵀ z.

The Bellman equation M(s, a, ·) = δ(s') + γ M(s', π_z(s'), ·) is fitted by least squares in the density with
respect to ρ: :meth:`FBLearner.update_measure`. With ``centred`` the density is 1/(1 − γ) + FᵀB instead of
FᵀB, so that F and B need not learn the constant. docs/fb.md lists differences from the reference code, with
reasons.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from zol.common import parallel
from zol.common.config import ConfigError
from zol.common.errors import CheckpointError, DataError
from zol.data import Batch, BatchSpec
from zol.models.architecture import Head, NetworkConfig
from zol.models.base import CENTRED
from zol.models.layers import unit
from zol.models.learner import NetworkLearner, View
from zol.models.losses import (
    Loss,
    centring_term,
    dense_loss,
    gram_loss,
    orthonormality_loss,
    pessimistic,
    q_loss,
    standing_loss,
)
from zol.models.network import Network
from zol.models.pretraining import Pretraining
from zol.models.settings import PretrainingConfig, plain_network
from zol.models.standing_backward import StandingBackward


class FBConfig(PretrainingConfig):
    """Sizes and settings of an FB model. The defaults train on a CPU; docs/fb.md lists the published ones."""

    orthonormality: float = Field(default=1.0, ge=0)
    """c_⊥"""
    q_loss: float = Field(default=0.0, ge=0)
    """weight of the loss on F·z; 0 leaves it out"""
    pessimism: float = Field(default=0.0, ge=0)
    """of the target measure; 0.5 with two members is their minimum. Above 0 the N×N form is used"""
    hindsight: float = Field(default=0.0, ge=0, le=1)
    """share of training latents that are B of a later state of the row's own episode: cloning then shows the
    actor what the data did on their way to a goal. The rest are as ``goal_share`` says"""
    hindsight_discount: float = Field(default=0.0, ge=0, lt=1)
    """how much later: k steps with probability ∝ this to the power of k; 0 takes γ"""
    frozen: bool = False
    """train the actor alone: F and B stay as they are, those of --from"""
    centred: bool = False
    """learn the centred measure, of density 1/(1 − γ) + F·B: F and B need not learn its constant part"""
    freeze_backward: float = Field(default=0.0, ge=0, lt=1)
    """share of the steps after which B stands still, and F learns its successor features; 0 is never"""
    encoder: Literal["none", "shallow", "deep"] = "none"
    """through which F and the actor see observations: one linear map to 256 numbers, or a network of two
    hidden layers to z_dim numbers, both followed by a projection onto a sphere (Bagatella et al. 2025)"""

    added = (
        PretrainingConfig.added
        | {"encoder", "hindsight", "hindsight_discount", "frozen", "centred", "freeze_backward"}
    ) - {"n_step"}

    @model_validator(mode="after")
    def _b_can_stand_still(self) -> Self:
        if self.freeze_backward and self.frozen:
            raise ValueError(
                "frozen trains the actor alone, so that B never moves: leave freeze_backward out"
            )
        if self.freeze_backward and self.pessimism:
            raise ValueError(
                f"pessimism={self.pessimism} is about the measure of pairs, which is not computed any more "
                f"once B stands still: leave pessimism or freeze_backward={self.freeze_backward} out"
            )
        return self


SHALLOW = 256  # numbers of a shallow encoding


def shape_of(config: FBConfig) -> dict[str, Any]:
    """What the settings say about encoder and measure, in the words of the architecture."""
    return encoded(config) | ({"measure": CENTRED} if config.centred else {})


def encoded(config: FBConfig) -> dict[str, Any]:
    """What the settings say about the encoder."""
    if config.encoder == "none":
        return {}
    shallow = config.encoder == "shallow"
    left = Head(hidden=config.backward_hidden, layers=0 if shallow else 2, norm=True)
    width = SHALLOW if shallow else config.z_dim
    return {"left": left, "left_dim": width, "actor_reads_left": not config.discrete}


class FBLearner(NetworkLearner):
    """Trains F, B and the actor of an FB network."""

    config: FBConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "gap": "health/covariance_gap",
        "ratio": "health/ratio_mean",
        "negative": "health/ratio_negative",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self, model: Network, config: FBConfig, *, autocast: torch.dtype | None = None, compiled: bool = False
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        self.target_backward = self.add_target("target_backward", model.backward_map)
        self.backward_optimiser = self.add_optimiser(
            "backward_optimiser", [model.backward_map], config.backward_learning_rate
        )
        if config.centred != (model.measure == CENTRED):
            raise ConfigError(
                f"centred={config.centred}, but the network has learned a measure that is "
                f"{'not ' * config.centred}centred: it is trained further with the measure that it has"
            )
        if config.freeze_backward:
            self.standing = StandingBackward(model.z_dim)
            self.add_helper("standing", self.standing)

    @staticmethod
    def architecture(config: FBConfig) -> NetworkConfig:
        """F, B and an actor on one flat observation, or on its encoding."""
        return plain_network(config, "fb", **shape_of(config))

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """Any network that factorises a measure, with a plain actor."""
        if network.successor_features or network.backward is None:
            raise CheckpointError(
                f"this {network.source} model learns successor features, and FB trains a factorised measure: "
                "a checkpoint of an FB model (Meta Motivo, td_jepa's FB, zol's own) can be trained further"
            )
        super().accept(network)

    @property
    def batches(self) -> BatchSpec:
        """Steps or stretches; later states for hindsight."""
        c = self.config
        return replace(super().batches, future=(c.hindsight_discount or c.discount) if c.hindsight else 0.0)

    @property
    def backward_stands(self) -> bool:
        """Whether B stands still from now on."""
        return 0 < self.config.freeze_backward <= self.progress

    @property
    def turning_points(self) -> tuple[float, ...]:
        """Where B comes to a stand."""
        return (self.config.freeze_backward,) if self.config.freeze_backward else ()

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step on F, B and the actor; then the targets follow."""
        still = self.config.frozen or self.backward_stands
        if not still:  # B sees observations through these statistics
            self.model.update_statistics(batch.obs)
            self.model.update_statistics(batch.next_obs)
        here, there = self.view(batch.obs), self.view(batch.next_obs)
        goal = there if batch.goal is None else self.view(batch.goal)
        backward = self.model.config.backward
        assert backward is not None
        goals = goal(backward.reads)
        with torch.set_grad_enabled(not still):
            B = self.run(self.model.backward_map, goals)
        states = batch.next_obs if batch.goal is None else batch.goal
        z = self.hindsight(batch, self.training_latents(B.detach(), generator, states), generator)
        terms = {}
        if not self.config.frozen:
            terms = self.update_measure(batch, here, there, goals, B, z, generator)
        terms |= self.update_actor(here, z, generator, batch.action)
        self.move_targets()
        return terms

    def hindsight(self, batch: Batch, z: Tensor, generator: torch.Generator) -> Tensor:
        """Latents ``[N, d]``, a share of them replaced by Π(B(s_{t+k})) of where the row's episode went."""
        if not self.config.hindsight:
            return z
        if batch.future_obs is None:
            raise DataError(
                f"hindsight={self.config.hindsight} takes goals from later states of an episode, and this "
                "batch has none: draw it by the learner's own BatchSpec, from data with episodes"
            )
        backward = self.model.config.backward
        assert backward is not None
        with torch.no_grad():
            later = self.run(self.model.backward_map, self.view(batch.future_obs)(backward.reads))
        return torch.where(self.uniform(z, generator) < self.config.hindsight, unit(later), z)

    def next_action(self, batch: Batch, there: View, z: Tensor, generator: torch.Generator) -> Tensor:
        """a' in the Bellman equation: what the policy of z does in s'."""
        return self.policy_action(there, z, generator, target=True)

    def update_measure(
        self,
        batch: Batch,
        here: View,
        there: View,
        goals: Tensor,
        B: Tensor,
        z: Tensor,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        r"""One step on F and B, or on F alone where B stands still.

        With i and j running over the N rows of a batch, s'_j as the goal of column j and F̄, B̄ the slow
        targets, the loss, summed over ensemble members, is

            L = ½ mean_{i≠j} (F_iᵀB_j − γ_i F̄'_iᵀB̄_j)²  −  mean_i F_iᵀB_i
                + c_⊥ [½ mean_{i≠j} (B_iᵀB_j)² − mean_i B_iᵀB_i]
            F̄'_i = F̄(s'_i, π_z(s'_i), z_i),    γ_i = γ·(1 − terminated_i)

        With n steps of data before the bootstrap γ_i = γⁿ·(1 − terminated_i), F̄' is taken where they end,
        the goal is a state on the way, and F_iᵀB_i counts (1 − γⁿ)/(1 − γ) times: see zol.data.sampling.
        n falls to 1 with the learning rates. The first line needs N² products only on paper: see
        zol.models.losses. A centred measure adds mean_{i≠j} a_i F_iᵀB_j, a_i = (1 − γ_i)/(1 − γ), to it. Once
        B stands still, what is left is a loss of successor features, ``standing_loss``.
        """
        c = self.config
        F_input = self.forward_input(here)
        gamma, mass = self.bootstrap(batch, F_input)
        constant = (1 - gamma) / (1 - c.discount) if c.centred else None
        with torch.no_grad():
            next_action = self.next_action(batch, there, z, generator)
            target_F = self.F(
                self.target_forward, self.forward_input(there, target=True), z, next_action
            )  # [P, N, d]
        F = self.F(self.model.forward_map, F_input, z, batch.action)
        if self.backward_stands:
            C, mean = self.standing.see(B)
            loss = standing_loss(F, B, target_F.mean(0), gamma, C, mean, mass, constant)
        else:
            loss = self.pair_loss(F, B, target_F, goals, gamma, mass, constant)
        value, terms = loss
        if c.q_loss > 0:
            q = q_loss(F, B, z, target_F, gamma, c.pessimism, mass, constant)
            value = value + c.q_loss * q
            terms["q"] = q.detach()
        value.backward()
        self.forward_optimiser.step_and_clear()
        if not self.backward_stands:
            self.backward_optimiser.step_and_clear()
        return terms | {"loss": value.detach()}

    def pair_loss(
        self,
        F: Tensor,
        B: Tensor,
        target_F: Tensor,
        goals: Tensor,
        gamma: Tensor,
        mass: Tensor | None,
        constant: Tensor | None,
    ) -> Loss:
        """L of F and B over the pairs of a batch: measure, orthonormality, and with ``constant`` centring."""
        c = self.config
        with torch.no_grad():
            target_B = self.run(self.target_backward, goals)
        if c.pessimism == 0.0:
            loss = gram_loss(F, B, target_F.mean(0), target_B, gamma, mass)
        else:
            target_M = pessimistic(target_F @ parallel.gather(target_B).mT, c.pessimism)
            loss = dense_loss(F, B, target_M, gamma, mass)
        orthonormality = orthonormality_loss(B)
        value = loss.value + c.orthonormality * orthonormality
        terms = loss.terms | {"orthonormality": orthonormality.detach()}
        if constant is not None:
            centring = centring_term(F, B, constant)
            value = value + centring
            terms["centring"] = centring.detach()
        return Loss(value, terms)


MODEL = Pretraining(
    name="fb",
    title="forward–backward representations",
    config=FBConfig,
    learner=FBLearner,
    presets="zol.train.presets:fb.toml",
)


def fb_network(config: FBConfig, generator: torch.Generator | None = None) -> Network:
    """A new FB network, its initial weights drawn from the generator (from one of seed 0 without it)."""
    return MODEL.network(config, generator)
