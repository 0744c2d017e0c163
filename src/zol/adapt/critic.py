r"""What a frozen model says a task is worth, in units of reward: the critic that online methods begin with.

Latents live on a sphere, which suits policies, but a value needs the scale that projection throws away.
With the sample's rewards r, features φ (B itself for FB) and C = E_ρ[φ φᵀ]:

    u      = C⁻¹ E_ρ[φ r]           r̂(s) = φ(s)ᵀu          the part of the reward that the features see
                                    (for a centred measure with a constant: zol.measure.predicted_reward)
    v      = E_ρ[B r]               Q(s, a) = F(s, a, z)ᵀv   its value under π_z, Σ_t γ^t r̂(s_{t+1})

For FB the two belong together: the successor features of B are C F, so that r̂ is worth (C F)ᵀu = Fᵀv. Where
B is white, C = I, both are the familiar z_r; elsewhere F·u would have the wrong scale and direction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zol import measure, prompt
from zol.evidence import Evidence
from zol.models.base import Model


@dataclass(frozen=True)
class FrozenCritic:
    """Values and predicted rewards of T tasks; tensors of states have the tasks as first dimension."""

    model: Model
    moment: Tensor  # v, [T, d]
    weights: Tensor  # u, [T, d]
    mean_reward: Tensor  # E_ρ[r], [T]
    unseen: Tensor  # E_ρ[r] − E_ρ[φ]ᵀu, [T]

    @staticmethod
    def of(model: Model, evidence: Evidence) -> "FrozenCritic":
        """Read v and u off the labelled sample."""
        found = prompt.reward_moments(model, evidence.obs, evidence.rewards)
        return FrozenCritic(model, found.moment, found.weights, found.mean, found.unseen)

    def value(self, obs: Tensor, z: Tensor, action: Tensor, reward_here: Tensor | float = 0.0) -> Tensor:
        """Q(s, a) under π_z ``[P, T, ...]`` for rows ``[T, ..., ·]``; differentiable in z and the action."""
        F = self.model.forward(obs, z, action)
        mean = _like(self.mean_reward, F[0, ..., 0])
        return measure.action_value(self.model, F, _like(self.moment, F[0]), mean, reward_here)

    @torch.no_grad()
    def predicted_reward(self, obs: Tensor) -> Tensor:
        """r̂(s) ``[T, ...]`` for states ``[T, ..., D]``."""
        phi = prompt.regressors(self.model)(obs)
        unseen = _like(self.unseen, phi[..., 0])
        return measure.predicted_reward(self.model, phi, _like(self.weights, phi), unseen)


def _like(per_task: Tensor, wanted: Tensor) -> Tensor:
    """``[T, …]`` with ones between the tasks and the last dimensions, to broadcast against ``wanted``."""
    missing = wanted.ndim - per_task.ndim
    return per_task.reshape(per_task.shape[0], *[1] * missing, *per_task.shape[1:]).to(wanted.dtype)
