"""Straightforward updates of the other models, as public code has them: what ours are compared with.

Same networks, same mathematics and same random numbers as our learners, written with plain autograd like
``benchmarks.reference_update``: orthonormality by N×N matrices, features and encodings computed again
wherever they are needed, Adam and target updates as they come, and actor losses whose gradients reach weights
that drop them.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.reference_update import Backward, Forward, Policy, Reference
from zol.data import Batch
from zol.models.layers import unit
from zol.models.learner import NetworkLearner


def squared_off_diagonal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Means of the squared entries off the diagonal of x xᵀ, and of the entries on it."""
    gram = x @ x.mT
    off = ~torch.eye(len(x), dtype=torch.bool)
    return gram[off].pow(2).mean(), gram.diagonal().mean()


class OneStep(Reference):
    """One-step FB: the data's next actions, and an F that does not see the latent."""

    def update_measure(self, batch: Batch, z: Tensor, generator: torch.Generator) -> None:
        self.data_action = batch.next_action
        super().update_measure(batch, torch.zeros_like(z), generator)

    def act(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        if self.data_action is not None:
            action, self.data_action = self.data_action, None
            return action
        return super().act(obs, z, generator)

    def update_actor(self, obs: Tensor, z: Tensor, generator: torch.Generator) -> None:
        action = self.act(obs, z, generator)
        Q = (self.forward_map(obs, torch.zeros_like(z), action) * z).sum(-1)
        self._climb(Q)

    def _climb(self, Q: Tensor) -> None:
        self.actor_optimiser.zero_grad()
        (-Q.mean(0).mean()).backward()
        self.actor_optimiser.step()


class Features(Reference):
    """Successor features; ``features`` is their loss and gives φ(s')."""

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model)
        d = config.z_dim
        self.covariance, self.mean, self.batches = torch.zeros(d, d), torch.zeros(d), 0
        self.centred = bool(getattr(config, "centred", False))

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        c = self.config
        loss = self.feature_loss(batch, generator)
        with torch.no_grad():
            phi = self.backward_map(batch.next_obs)
            self.batches += 1
            rate = max(c.covariance_rate, 1 / self.batches)
            if self.centred:
                self.mean = (1 - rate) * self.mean.to(phi) + rate * phi.mean(0)
                phi = phi - self.mean
            self.covariance = (1 - rate) * self.covariance.to(phi) + rate * (phi.mT @ phi) / len(phi)
            inverse = torch.linalg.pinv(self.covariance.double(), rtol=1e-6, hermitian=True).to(phi)
            z = self.mixed(phi @ inverse, generator)
            action = self.act(batch.next_obs, z, generator)
            following = self.target_forward(batch.next_obs, z, action).mean(0)
            gamma = c.discount * (~batch.terminated).to(z.dtype).unsqueeze(-1)
            target = (phi + gamma * following).expand(c.members, -1, -1)
        psi = self.forward_map(batch.obs, z, batch.action)
        loss = loss + 0.5 * c.members * nn.functional.mse_loss(psi, target)
        self.step(loss)
        self.update_actor(batch.obs, z, generator)
        with torch.no_grad():
            self.follow(self.target_forward, self.forward_map)
            self.follow_features()

    def step(self, loss: Tensor) -> None:
        self.forward_optimiser.zero_grad()
        self.backward_optimiser.zero_grad()
        loss.backward()
        self.forward_optimiser.step()
        self.backward_optimiser.step()

    def mixed(self, goals: Tensor, generator: torch.Generator) -> Tensor:
        n = len(goals)
        z = torch.randn(n, self.config.z_dim, generator=generator).to(goals)
        goals = goals[torch.randperm(n, generator=generator)]
        return unit(torch.where(torch.rand(n, 1, generator=generator) < self.config.goal_share, goals, z))

    def feature_loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        raise NotImplementedError

    def follow_features(self) -> None:
        """Nothing follows features that bootstrap from nothing."""


class Laplacian(Features):
    def feature_loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        phi, next_phi = self.backward_map(batch.obs), self.backward_map(batch.next_obs)
        off, on = squared_off_diagonal(phi)
        return (phi - next_phi).pow(2).mean() + self.config.orthonormality * (off - 2 * on)


class HILP(Features):
    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        super().__init__(config, model, learner)
        self.second = deepcopy(self.backward_map)
        self.second.load_state_dict(deepcopy(learner.features.second.state_dict()))  # type: ignore[attr-defined]
        self.slow = [deepcopy(self.backward_map), deepcopy(self.second)]
        self.second_optimiser = torch.optim.Adam(self.second.parameters(), lr=config.backward_learning_rate)

    def feature_loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        c, n = self.config, len(batch)
        rows = torch.randperm(n, generator=generator)
        chance = torch.rand(n, 1, generator=generator)
        assert batch.future_obs is not None
        goal = torch.where(chance < c.random_goals, batch.next_obs[rows], batch.future_obs)
        reached = (batch.obs == goal).all(-1).to(goal.dtype)

        def value(obs: Tensor, network: nn.Module) -> Tensor:
            return -(network(obs) - network(goal)).pow(2).sum(-1).clamp_min(1e-6).sqrt()

        with torch.no_grad():
            after = [value(batch.next_obs, slow) for slow in self.slow]
            before = [value(batch.obs, slow) for slow in self.slow]
            targets = [reached - 1 + c.feature_discount * (1 - reached) * v for v in after]
            advantage = torch.minimum(*targets) - (before[0] + before[1]) / 2
            weight = torch.where(advantage >= 0, c.expectile, 1 - c.expectile)
        values = [value(batch.obs, network) for network in (self.backward_map, self.second)]
        return sum((weight * (t - v).pow(2)).mean() for t, v in zip(targets, values, strict=True))

    def step(self, loss: Tensor) -> None:
        self.second_optimiser.zero_grad()
        super().step(loss)
        self.second_optimiser.step()

    def follow_features(self) -> None:
        rate = self.config.feature_target_rate
        for slow, fast in zip(self.slow, (self.backward_map, self.second), strict=True):
            for p, q in zip(slow.parameters(), fast.parameters(), strict=True):
                p.copy_((1 - rate) * p + rate * q)


class Encoder(nn.Module):
    """One linear map onto a sphere: φ of TD-JEPA as it comes."""

    def __init__(self, obs: int, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, dim))

    def forward(self, obs: Tensor) -> Tensor:
        return unit(self.net(obs))


class Jepa(Reference):
    """TD-JEPA, asymmetric."""

    left: nn.Module
    predictor: nn.Module

    def __init__(self, config: Any, model: nn.Module, learner: NetworkLearner) -> None:
        c = self.config = config
        e, d = c.encoder_dim, c.z_dim
        self.parts = {
            "left": (Encoder(c.obs_dim, e), model.left),
            "forward_map": (Forward(e, c.action_dim, d, c.hidden, c.members), model.forward_map),
            "backward_map": (Backward(c.obs_dim, d, c.backward_hidden), model.backward_map),
            "actor": (Policy(e, c.action_dim, d, c.hidden), model.actor),
            "predictor": (self._predictor(c), learner.task_predictor),  # type: ignore[attr-defined]
        }
        for name, (network, ours) in self.parts.items():
            network.load_state_dict(deepcopy(ours.state_dict()), assign=True)
            setattr(self, name, network)
        self.targets = {
            name: deepcopy(self.parts[name][0])
            for name in ("left", "forward_map", "backward_map", "predictor")
        }
        rates = {"backward_map": c.backward_learning_rate, "actor": c.actor_learning_rate}
        self.optimisers = {
            name: torch.optim.Adam(network.parameters(), lr=rates.get(name, c.learning_rate))
            for name, (network, _) in self.parts.items()
        }
        self.forward_optimiser = self.optimisers["forward_map"]
        self.backward_optimiser = self.optimisers["backward_map"]
        self.actor_optimiser = self.optimisers["actor"]

    @staticmethod
    def _predictor(c: Any) -> Forward:
        found = Forward(c.z_dim, c.action_dim, c.z_dim, c.hidden, c.members)
        last = found.Fs[-1]
        last.weight = nn.Parameter(torch.empty(c.members, c.hidden, c.encoder_dim))
        last.bias = nn.Parameter(torch.empty(c.members, 1, c.encoder_dim))
        return found

    def update(self, batch: Batch, generator: torch.Generator) -> None:
        c = self.config
        z = self.latents(batch.next_obs, generator)
        with torch.no_grad():
            next_phi, next_psi = (self.targets[k](batch.next_obs) for k in ("left", "backward_map"))
            action = self.act(next_phi, z, generator)
            gamma = c.discount * (~batch.terminated).to(z.dtype).unsqueeze(-1)
            psi_target = next_psi + gamma * self.targets["forward_map"](next_phi, z, action).mean(0)
            phi_target = next_phi + gamma * self.targets["predictor"](next_psi, z, action).mean(0)
        phi, psi = self.left(batch.obs), self.backward_map(batch.obs)
        loss = (self.forward_map(phi, z, batch.action) - psi_target).pow(2).sum(-1).mean()
        loss = loss + (self.predictor(psi, z, batch.action) - phi_target).pow(2).sum(-1).mean()
        for weight, encoded in ((c.encoder_orthonormality, phi), (c.orthonormality, psi)):
            off, on = squared_off_diagonal(encoded)
            loss = loss + weight * (0.5 * off - on)
        trained = [self.optimisers[k] for k in ("left", "forward_map", "backward_map", "predictor")]
        for optimiser in trained:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in trained:
            optimiser.step()
        with torch.no_grad():
            seen = self.left(batch.obs)
        self.update_actor(seen, z, generator)
        with torch.no_grad():
            for name, target in self.targets.items():
                self.follow(target, self.parts[name][0])


CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "fb": ("fb", {}, lambda config, model, learner: Reference(config, model)),
    "one_step_fb": ("one_step_fb", {}, lambda config, model, learner: OneStep(config, model)),
    "laplacian": ("laplacian", {}, Laplacian),
    "hilp": ("hilp", {}, HILP),
    "td_jepa": ("td_jepa", {}, Jepa),
}
"""What is timed: its name, its entry in ``MODELS``, settings beside the defaults, and the reference."""
