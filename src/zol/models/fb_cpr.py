r"""FB-CPR: FB whose policies also look like demonstrations (Tirinzoni et al. 2025).

Demonstrations are states only. A window of W of them is what an expert who follows

    z_E = Π( mean_w B(s'_w) )

would visit. A discriminator D(s, z) tells pairs (s, z_E) of demonstrations from pairs (s, z) of states that
π_z visited, and its logit is a reward for staying near demonstrations, with a critic of its own:

    D       minimise  mean_i [ −log σ(D(s_E, z_E)) + log(1 + exp D(s, z)) ] + λ mean_i (‖∇_(s,z) D(x_i)‖ − 1)²
    Q_D     ½ Σ_P mean_i (Q_D(s, a, z) − r − γ agg_P Q̄_D(s', a', z))²,      r = D(s, z)
    actor   maximise  mean_i agg_P F(s, a, z)ᵀz + α c mean_i agg_P Q_D(s, a, z),    c = mean_i |agg_P Fᵀz|

where x_i lies at random between a demonstrated and a visited pair, and (s, z) of D's loss are stored pairs.
Everything else is learned on the same states with latents from a mixture: with ``relabel_share`` a stored z
is replaced by B(s') of a random row (``goal_share``), a window's z_E (``expert_share``), or a uniform one.
Demonstrations matter through D and through z_E alone: no action of an expert is ever seen.
"""

from collections.abc import Mapping
from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from zol.common import parallel
from zol.common.errors import CheckpointError, DataError
from zol.data import Batch, BatchSpec
from zol.models.architecture import Head, NetworkConfig, Tower
from zol.models.fb import FBConfig, FBLearner, shape_of
from zol.models.layers import unit
from zol.models.learner import View
from zol.models.losses import pessimistic
from zol.models.network import Network
from zol.models.optimisation import frozen
from zol.models.pretraining import Pretraining
from zol.models.settings import plain_network


class FBCPRConfig(FBConfig):
    """Sizes and settings of FB-CPR. Those of FB keep their meaning; z is drawn differently."""

    goal_share: float = Field(default=0.2, ge=0, le=1)
    """share of mixed latents that are B(s') of random states"""
    expert_share: float = Field(default=0.6, ge=0, le=1)
    """share that are z_E of demonstrated windows; the rest are uniform on the sphere"""
    relabel_share: float = Field(default=0.8, ge=0, le=1)
    """share of stored latents that are replaced by mixed ones"""
    window: int = Field(default=8, ge=1)
    """W: demonstrated states that z_E averages"""
    actor_pessimism: float = Field(default=0.5, ge=0)
    """of the actor's Q, of both kinds"""
    style_weight: float = Field(default=0.01, ge=0)
    """α: how much staying near demonstrations counts; 0 trains discriminator and critic, and ignores them"""
    scale_style: bool = True
    """multiply α by c, the size of the other value"""
    gradient_penalty: float = Field(default=10.0, ge=0)
    """λ"""
    critic_pessimism: float = Field(default=0.5, ge=0)
    """of the target of the critic Q_D"""
    critic_target_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the critic's target follows"""
    critic_learning_rate: float = Field(default=1e-4, gt=0)
    """of the critic, which is as wide and deep as F"""
    discriminator_learning_rate: float = Field(default=1e-5, gt=0)
    """of the discriminator"""
    discriminator_hidden: int = Field(default=256, gt=0)
    """width of the discriminator"""
    discriminator_layers: int = Field(default=3, ge=1)
    """its hidden layers"""
    recent_latents: int = Field(default=10_000, ge=1)
    """mixed latents that are kept for acting"""

    @model_validator(mode="after")
    def _what_fb_cpr_can(self) -> Self:
        if self.goal_share + self.expert_share > 1:
            raise ValueError(
                f"goal_share {self.goal_share} and expert_share {self.expert_share} together exceed one"
            )
        if self.discrete:
            raise ValueError("FB-CPR shapes an actor, and discrete actions have none: train fb instead")
        if self.actor != "plain" or self.bc:
            raise ValueError(
                "FB-CPR holds its actor to demonstrations by a discriminator: leave actor and bc out, or "
                "train fb"
            )
        if self.n_step > 1:
            raise ValueError(f"n_step={self.n_step}: FB-CPR bootstraps after every step, as published")
        if self.prior_share or self.freeze_backward:
            raise ValueError(
                "FB-CPR mixes its latents in its own way, and B follows what its policies visit: leave "
                "prior_share and freeze_backward out, or train fb"
            )
        return self


class RecentLatents(nn.Module):
    """The latents of the last updates, from which those for acting are drawn."""

    stored: Tensor
    added: Tensor

    def __init__(self, room: int, z_dim: int) -> None:
        super().__init__()
        self.register_buffer("stored", torch.zeros(room, z_dim))
        self.register_buffer("added", torch.zeros((), dtype=torch.int64))

    def add(self, z: Tensor) -> None:
        """Keep latents ``[N, d]`` in place of the oldest ones."""
        room = len(self.stored)
        z = z[-room:]
        places = (self.added + torch.arange(len(z), device=z.device)) % room
        self.stored[places] = z.to(self.stored.dtype)
        self.added += len(z)

    def __len__(self) -> int:
        return min(int(self.added), len(self.stored))


class FBCPRLearner(FBLearner):
    """Trains F, B, the actor, the discriminator and the critic of its reward."""

    config: FBCPRConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "D loss": "discriminator",
        "D reward": "style_reward",
        "gap": "health/covariance_gap",
        "residual": "health/bellman_residual",
    }

    def __init__(
        self,
        model: Network,
        config: FBCPRConfig,
        *,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        super().__init__(model, config, autocast=autocast, compiled=compiled)
        self.target_critic = self.add_target("target_critic", model.critic_map, config.critic_target_rate)
        self.critic_optimiser = self.add_optimiser(
            "critic_optimiser", [model.critic_map], config.critic_learning_rate
        )
        self.discriminator_optimiser = self.add_optimiser(
            "discriminator_optimiser", [model.discriminator], config.discriminator_learning_rate
        )
        self.recent = RecentLatents(config.recent_latents, config.z_dim)
        self.add_helper("recent", self.recent)

    @staticmethod
    def architecture(config: FBCPRConfig) -> NetworkConfig:  # type: ignore[override]
        """FB's network with a critic like F, and a discriminator."""
        c = config
        critic = Tower(
            hidden=c.hidden,
            layers=c.hidden_layers,
            embedding_layers=c.embedding_layers,
            residual=c.residual,
            members=c.members,
        )
        judge = Head(hidden=c.discriminator_hidden, layers=c.discriminator_layers)
        return plain_network(
            c, "fb_cpr", critic=critic, discriminator=judge, window=c.window, **shape_of(config)
        )

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """An FB network with a critic and a discriminator."""
        if network.critic is None or network.discriminator is None:
            raise CheckpointError(
                f"this {network.source} model has no discriminator and no critic of its reward, which FB-CPR "
                "trains: start from a checkpoint of fb_cpr, or train a new one"
            )
        super().accept(network)

    @property
    def batches(self) -> BatchSpec:
        """Single steps with the latents that acted, and windows of demonstrations."""
        return BatchSpec(expert_window=self.config.window)

    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step on everything, in the order of the published code; then the targets follow."""
        if batch.z is None or batch.expert_obs is None or batch.expert_next_obs is None:
            raise DataError(
                "FB-CPR learns from what its own policies visit, with their latents, and from windows of "
                "demonstrations: train it in a world (zol train fb_cpr --world NAME --demonstrations SET)"
            )
        model, c = self.model, self.config
        model.update_statistics(batch.obs)
        model.update_statistics(batch.next_obs)
        here, there = self.view(batch.obs), self.view(batch.next_obs)
        assert model.config.backward is not None
        goals = there(model.config.backward.reads)
        B = self.run(model.backward_map, goals)
        expert, expert_z = self.expert_pairs(batch.expert_obs, batch.expert_next_obs, len(batch))
        terms = self.update_discriminator(here, batch.z, expert, expert_z, generator)
        mixed = self.mixed_latents(B.detach(), expert_z, generator)
        self.recent.add(parallel.gather(mixed))
        relabelled = self._chance(mixed, generator) < c.relabel_share
        z = torch.where(relabelled.unsqueeze(-1), mixed, batch.z)
        terms |= self.update_measure(batch, here, there, goals, B, z, generator)
        terms |= self.update_critic(batch, here, there, z, generator)
        terms |= self.update_actor(here, z, generator)
        self.move_targets()
        return terms

    @torch.no_grad()
    def expert_pairs(self, obs: Tensor, next_obs: Tensor, rows: int) -> tuple[View, Tensor]:
        """States of windows ``[M, W, D]`` as rows ``[N, D]``, and z_E of the window of each, ``[N, d]``."""
        backward = self.model.config.backward
        assert backward is not None
        B = self.run(self.model.backward_map, self.view(next_obs)(backward.reads))  # [M, W, d]
        z = unit(B.mean(1, keepdim=True)).expand_as(B)
        return self.view(obs.flatten(0, 1)[:rows]), z.flatten(0, 1)[:rows]

    def mixed_latents(self, B: Tensor, expert_z: Tensor, generator: torch.Generator) -> Tensor:
        """One latent per row: a goal's, a demonstrated window's, or a uniform one, ``[N, d]``."""
        c, n = self.config, parallel.size() * len(B)
        uniform = unit(self.normal(B, generator))

        def shuffled(rows: Tensor) -> Tensor:
            order = torch.randperm(n, generator=generator, device=generator.device)
            return parallel.gather(rows)[parallel.share(order).to(rows.device)]

        goals, experts = unit(shuffled(B)), shuffled(expert_z)
        kind = self._chance(B, generator).unsqueeze(-1)
        is_goal, is_expert = kind < c.goal_share, kind < c.goal_share + c.expert_share
        return torch.where(is_goal, goals, torch.where(is_expert, experts, uniform))

    def update_discriminator(
        self, visited: View, z: Tensor, expert: View, expert_z: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """One step of D; the equation is at the top."""
        shape = self.model.config.discriminator
        assert shape is not None
        D, seen, shown = self.model.discriminator, visited(shape.reads), expert(shape.reads)
        on_expert, on_visited = self.run(D, shown, expert_z), self.run(D, seen, z)
        loss = parallel.mean(functional.softplus(-on_expert) + functional.softplus(on_visited))
        terms = {}
        if self.config.gradient_penalty > 0:
            share = self._chance(seen, generator).unsqueeze(-1)
            penalty = self._slope_penalty(
                share * shown + (1 - share) * seen, share * expert_z + (1 - share) * z
            )
            loss = loss + self.config.gradient_penalty * penalty
            terms["slope_penalty"] = penalty.detach()
        loss.backward()
        self.discriminator_optimiser.step_and_clear()
        return terms | {"discriminator": loss.detach()}

    def _slope_penalty(self, seen: Tensor, z: Tensor) -> Tensor:
        """mean_i (‖∇_(s,z) D‖ − 1)² at pairs between demonstrated and visited ones."""
        seen, z = seen.detach().requires_grad_(), z.detach().requires_grad_()
        logits = self.run(self.model.discriminator, seen, z).sum()
        slopes = torch.autograd.grad(logits, (seen, z), create_graph=True)
        return parallel.mean((torch.cat(slopes, -1).norm(dim=-1) - 1).square())

    def update_critic(
        self, batch: Batch, here: View, there: View, z: Tensor, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """One step of Q_D towards the discriminator's reward and its own slow copy."""
        c, network = self.config, self.model.config
        assert network.critic is not None
        assert network.discriminator is not None
        reads = network.critic.reads
        with torch.no_grad():
            reward = self.model.discriminator.reward(here(network.discriminator.reads), z)
            action = self.policy_action(there, z, generator)
            following = self.run(self.target_critic, there(reads), z, action).squeeze(-1)  # [P, N]
            gamma = c.discount * (~batch.terminated).to(reward.dtype)
            target = reward + gamma * pessimistic(following, c.critic_pessimism)
        Q = self.run(self.model.critic_map, here(reads), z, batch.action).squeeze(-1)
        loss = 0.5 * len(Q) * parallel.mean((Q - target).square())
        loss.backward()
        self.critic_optimiser.step_and_clear()
        return {"critic": loss.detach(), "style_reward": parallel.mean(reward)}

    def update_actor(
        self, view: View, z: Tensor, generator: torch.Generator, data: Tensor | None = None
    ) -> dict[str, Tensor]:
        """One step of the actor up Fᵀz + α c Q_D."""
        del data  # what an actor is held to here are demonstrations
        c, model = self.config, self.model
        assert model.config.critic is not None
        action = self.policy_action(view, z, generator)
        with torch.no_grad():
            seen, judged = self.forward_input(view), view(model.config.critic.reads)
        with frozen(model.forward_map), frozen(model.critic_map):
            own = (self.F(model.forward_map, seen, z, action) * z).sum(-1)  # [P, N]
            style = self.run(model.critic_map, judged, z, action).squeeze(-1)
        own, style = pessimistic(own, c.actor_pessimism), pessimistic(style, c.actor_pessimism)
        size = parallel.mean(own.abs()).detach() if c.scale_style else 1.0
        value, likeness = parallel.mean(own), parallel.mean(style)
        loss = -value - c.style_weight * size * likeness
        loss.backward()
        self.actor_optimiser.step_and_clear()
        return {"actor": loss.detach(), "Q": value.detach(), "Q_style": likeness.detach()}

    @staticmethod
    def _chance(like: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform numbers in [0, 1), one per row of ``like``: our share of the global batch's."""
        n = parallel.size() * len(like)
        drawn = torch.rand(n, generator=generator, device=generator.device)
        return parallel.share(drawn).to(like)


MODEL = Pretraining(
    name="fb_cpr",
    title="FB whose policies look like demonstrations (FB-CPR), online in a world",
    config=FBCPRConfig,
    learner=FBCPRLearner,
    presets="zol.train.presets:fb_cpr.toml",
    online="demonstrations",
)
