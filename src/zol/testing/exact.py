r"""An FB model of full rank on a finite MDP, built by linear algebra: no training, no error.

With ρ the data's next-state distribution and any orthogonal R,

    B(s) = R e_s / √ρ(s),      F(s, a, z) = R · [M^{π_z}(s, a, s') / √ρ(s')]_{s'}

give FᵀB(s') = M(s, a, s')/ρ(s') exactly, and E_ρ[B Bᵀ] = I. Every convention of a measure has its exact
model. Centred features (``offset=1``) subtract means, m being the total mass of M,

    B(s) = R (e_s / √ρ(s) − √ρ),      F(s, a, z) = R · [M^{π_z}(s, a, s') / √ρ(s') − m √ρ(s')]_{s'}

so that E_ρ[B] = 0 and FᵀB(s') = M(s, a, s')/ρ(s') − m. FB's centred measure does without E_ρ[B] = 0: with
``features_centred=False`` B keeps its mean, B(s) = R e_s / √ρ(s), and FᵀB(s') is the same. The policy π_z is
the soft-optimal one for the reward r_z(s) = B(s)ᵀz, so that it is differentiable in z. States are one-hot
rows, actions are probabilities over A; both may be mixtures, in which F is linear.
"""

import torch
from torch import Tensor, nn

from zol.common.config import ConfigError
from zol.models.base import Measure
from zol.models.layers import unit
from zol.worlds.tabular import FiniteMDP


class ExactFB(nn.Module):
    """A model whose successor measure is exact, in float64."""

    kind = "exact"
    rotation: Tensor
    density: Tensor

    def __init__(
        self,
        mdp: FiniteMDP,
        density: Tensor,
        *,
        temperature: float = 0.1,
        measure: Measure | None = None,
        features_centred: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.mdp = mdp
        self.temperature = temperature
        self.measure = measure or Measure()
        if self.measure.offset not in (0.0, 1.0):
            raise ConfigError(
                f"features are centred (offset=1) or not (offset=0), got offset={self.measure.offset}"
            )
        self.features_centred = features_centred and self.measure.offset != 0
        self.obs_dim, self.action_dim, self.z_dim = mdp.states, mdp.actions, mdp.states
        self.discount = mdp.discount
        noise = torch.randn(mdp.states, mdp.states, generator=generator, dtype=torch.float64)
        self.register_buffer("rotation", torch.linalg.qr(noise)[0])
        self.register_buffer("density", density)

    def features(self) -> Tensor:
        """B of every state, ``[S, d]``."""
        root = self.density.sqrt()
        B = (self.rotation / root).mT
        return B - self.rotation @ root if self.features_centred else B

    def policy(self, z: Tensor) -> Tensor:
        """π_z(a | s), ``[..., S, A]``: soft value iteration for r_z, unrolled, so gradients are exact."""
        reward = z @ self.features().mT
        scale = self.temperature * reward.abs().amax(-1, keepdim=True).unsqueeze(-1)
        V = torch.zeros_like(reward)
        sweeps = int(-28 / torch.tensor(self.discount).log())  # γ^sweeps < 1e-12
        for _ in range(sweeps):
            Q = self._backup(reward, V)
            V = (scale * (Q / scale).logsumexp(-1, keepdim=True)).squeeze(-1)
        return torch.softmax(self._backup(reward, V) / scale, dim=-1)

    def _backup(self, reward: Tensor, V: Tensor) -> Tensor:
        """Q(s, a) = E[r(s') + γ V(s')], ``[..., S, A]``; nothing follows a terminal s'."""
        later = self.mdp.continuing(V.unsqueeze(-1)).squeeze(-1)
        return torch.einsum("sat,...t->...sa", self.mdp.transition, reward + self.discount * later)

    def backward(self, obs: Tensor) -> Tensor:
        """The backward features B(s), ``[..., d]``; linear in mixtures of states."""
        return obs.double() @ self.features()

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """The forward features F(s, a, z), ``[1, ..., d]``: an ensemble of one."""
        M = self.mdp.successor(self.policy(z), self.measure.begins)  # [..., S, A, S]
        if self.measure.normalised:
            M = (1 - self.discount) * M
        row = torch.einsum("...s,...a,...sat->...t", obs.double(), action.double(), M)
        row = row / self.density.sqrt()
        if self.measure.offset:
            mass = 1.0 if self.measure.normalised else 1.0 / (1.0 - self.discount)
            row = row - mass * self.density.sqrt()
        return (row @ self.rotation.mT).unsqueeze(0)

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """Action probabilities, ``[..., A]``."""
        return torch.einsum("...s,...sa->...a", obs.double(), self.policy(z))

    def project(self, z: Tensor) -> Tensor:
        """Put latents onto the sphere: √d · z/‖z‖."""
        return unit(z)
