r"""How an FB model is trained: the measure loss on F and B, the actor's ascent, slow targets.

With i and j running over the N rows of a batch, s'_j as the goal of column j and F̄, B̄ the slow targets:

    L = ½ mean_{i≠j} (F_iᵀB_j − γ_i F̄'_iᵀB̄_j)²  −  mean_i F_iᵀB_i
        + c_⊥ [½ mean_{i≠j} (B_iᵀB_j)² − mean_i B_iᵀB_i]
    γ_i = γ·(1 − terminated_i)

summed over ensemble members. With n steps of data before the bootstrap γ_i = γⁿ·(1 − terminated_i), F̄' is
taken where they end, the goal is a state on the way, and F_iᵀB_i counts (1 − γⁿ)/(1 − γ) times: see
zol.data.sampling. n falls to 1 with the learning rates.

The first line needs N² products only on paper: see zol.models.losses.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.common import parallel
from zol.data import Batch, BatchSpec
from zol.models.fb import FB, greedy_values
from zol.models.layers import Normaliser, unit
from zol.models.learning import Adam, frozen, move_towards, named_state, restore_state
from zol.models.losses import dense_loss, gram_loss, orthonormality_loss, pessimistic, q_loss


class FBLearner:
    """Trains an :class:`FB`: target networks, three Adam optimisers and the update.

    ``autocast`` is the type that networks compute in (``torch.bfloat16`` on GPUs that are fast at it), while
    weights and losses keep theirs: a Gram loss is a difference of large sums. ``compiled`` fuses each
    network by ``torch.compile``. docs/speed.md says when they pay.
    """

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
        self._n_step = c.n_step
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

    @property
    def batches(self) -> BatchSpec:
        """Single steps, or the stretches that n-step bootstraps need."""
        return BatchSpec(stretch=self._n_step, discount=self.model.config.discount)

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on, and of n: its bias goes, too."""
        self._n_step = max(1, round(scale * self.model.config.n_step))
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
