r"""How features of successor features are learned, by name; a loss is one class and one line of ``FEATURES``.

With rows (s, a, s'), future states g of the same episode, slow copies φ̄ and

    orth(φ) = ½ mean_{i≠j} (φ_iᵀφ_j)² − mean_i φ_iᵀφ_i,

    laplacian    mean (φ(s) − φ(s'))² + 2 c_⊥ orth(φ(s))            smooth along the data (Wu et al. 2019)
    byol         mean ‖p(φ(s), a) − φ̄(s')‖² + c_⊥ orth(φ(s))        what predicts its own next value
    byol_gamma   the same with a state a geometric number of steps later in place of s'
    hilp         distances in time: V_i(s, g) = −‖φ_i(s) − φ_i(g)‖ values goals (Park et al. 2024),
                 Σ_{i=1,2} mean |τ − 1[A < 0]| (r + γ m V̄_i(s', g) − V_i(s, g))²,
                 r = 1[s = g] − 1,  m = 1[s ≠ g],  A = r + γ m min_i V̄_i(s', g) − mean_i V̄_i(s, g)
    random       none: φ keeps its initial weights
    identity     none: φ is the normalised observation

The first mean of the Laplacian is over rows and dimensions, as published; those of BYOL are over rows, and
sum over dimensions.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from zol.common import parallel
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec
from zol.models.layers import initialise
from zol.models.learner import NetworkLearner, View
from zol.models.losses import orthonormality_loss
from zol.models.nets import BackwardMap, Predictor

FeatureName = Literal["laplacian", "hilp", "byol", "byol_gamma", "random", "identity"]
NEAREST = 1e-6  # of a squared distance, under its root


@dataclass(frozen=True)
class FeatureTerms:
    """What one batch gives: the loss, if features are learned, φ(s') and numbers worth watching."""

    next_phi: Tensor  # [N, d]
    loss: Tensor | None = None
    terms: Mapping[str, Tensor] = field(default_factory=dict)


class FeatureLoss(ABC):
    """A way to learn features: the networks that only it needs, and its loss."""

    learned: ClassVar[bool] = True

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        """``generator`` draws the initial weights of further networks."""
        self.learner, self.config, self.generator = learner, learner.config, generator
        if self.learned:
            learner.add_optimiser(
                "feature_optimiser", [learner.model.backward_map], self.config.backward_learning_rate
            )

    @property
    def batches(self) -> BatchSpec:
        """What it looks at."""
        return BatchSpec()

    @abstractmethod
    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """The loss of a batch; ``here`` and ``there`` are views of s and s'."""

    def phi(self, view: View, network: nn.Module | None = None) -> Tensor:
        """The features of a batch of observations, by the model's network or by another of its shape."""
        backward = self.learner.model.config.backward
        assert backward is not None
        return self.learner.run(network or self.learner.model.backward_map, view(backward.reads))

    def later(self, batch: Batch) -> Tensor:
        """The future states of a batch."""
        if batch.future_obs is None:
            raise DataError(
                f"{type(self).__name__} looks at later states of an episode, and this batch has none: draw "
                "it by the learner's own BatchSpec, from data with episodes"
            )
        return batch.future_obs


class Laplacian(FeatureLoss):
    """Smooth and orthonormal."""

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """mean (φ(s) − φ(s'))² + c_⊥ [mean_{i≠j} (φ_iᵀφ_j)² − 2 mean_i φ_iᵀφ_i]."""
        phi, next_phi = self.phi(here), self.phi(there)
        smoothness = parallel.mean((phi - next_phi).square())
        orthonormality = 2 * orthonormality_loss(phi)
        loss = smoothness + self.config.orthonormality * orthonormality
        terms = {"smoothness": smoothness.detach(), "orthonormality": orthonormality.detach()}
        return FeatureTerms(next_phi.detach(), loss, terms)


class BYOL(FeatureLoss):
    """What predicts its own next value from itself and the action."""

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        super().__init__(learner, generator)
        model, c = learner.model, self.config
        shape = {"hidden": c.hidden, "layers": c.hidden_layers, "embedding_layers": c.embedding_layers}
        self.predictor = Predictor(model.z_dim, model.action_dim, **shape)
        initialise(self.predictor, generator)
        learner.add_helper("predictor", self.predictor)
        learner.add_optimiser("predictor_optimiser", [self.predictor], c.learning_rate)
        self.slow = learner.add_target("target_features", model.backward_map, c.feature_target_rate)

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """mean ‖p(φ(s), a) − φ̄(s')‖² + c_⊥ orth(φ(s))."""
        phi = self.phi(here)
        with torch.no_grad():
            target = self.phi(self.target_view(batch, there), self.slow)
        predicted = self.learner.run(self.predictor, phi, batch.action)
        prediction = parallel.mean((predicted - target).square().sum(-1))
        orthonormality = orthonormality_loss(phi)
        with torch.no_grad():
            next_phi = self.phi(there)
        terms = {"prediction": prediction.detach(), "orthonormality": orthonormality.detach()}
        return FeatureTerms(next_phi, prediction + self.config.orthonormality * orthonormality, terms)

    def target_view(self, batch: Batch, there: View) -> View:
        """The state whose features are predicted."""
        return there


class BYOLGamma(BYOL):
    """The same for a state a geometric number of steps later."""

    @property
    def batches(self) -> BatchSpec:
        """Transitions with a later state of the same episode."""
        return BatchSpec(future=True, discount=self.config.future_discount)

    def target_view(self, batch: Batch, there: View) -> View:
        """That later state."""
        return self.learner.view(self.later(batch))


class HILP(FeatureLoss):
    """Distances between features are numbers of steps."""

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        super().__init__(learner, generator)
        model, c = learner.model, self.config
        self.second = deepcopy(model.backward_map)
        initialise(self.second, generator)
        learner.add_helper("second_features", self.second)
        learner.add_optimiser("second_optimiser", [self.second], c.backward_learning_rate)
        self.networks = (model.backward_map, self.second)
        self.slow = tuple(
            learner.add_target(name, network, c.feature_target_rate)
            for name, network in zip(("target_features", "target_second"), self.networks, strict=True)
        )

    @property
    def batches(self) -> BatchSpec:
        """Transitions with a later state of the same episode, which is the goal."""
        return BatchSpec(future=True, discount=self.config.future_discount)

    def goals(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Later states, some of them replaced by states of other rows."""
        n = parallel.size() * len(batch)
        device = generator.device
        rows = parallel.share(torch.randperm(n, generator=generator, device=device)).to(batch.obs.device)
        chance = parallel.share(torch.rand(n, 1, generator=generator, device=device)).to(batch.obs.device)
        others = parallel.gather(batch.next_obs)[rows]
        return torch.where(chance < self.config.random_goals, others, self.later(batch))

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """The expectile loss of V_i(s, g) = −‖φ_i(s) − φ_i(g)‖ for both networks."""
        c, goal = self.config, self.goals(batch, generator)
        goal_view = self.learner.view(goal)
        reached = (batch.obs == goal).all(-1)
        with torch.no_grad():
            after = torch.stack([self.value(there, goal_view, slow) for slow in self.slow])  # V̄(s', g)
            before = torch.stack([self.value(here, goal_view, slow) for slow in self.slow])
            reached = reached.to(after.dtype)
            target = reached - 1 + c.feature_discount * (1 - reached) * after  # [2, N]
            advantage = target.amin(0) - before.mean(0)
            weight = (c.expectile - (advantage < 0).to(after.dtype)).abs()
            next_phi = self.phi(there)
        value = torch.stack([self.value(here, goal_view, network) for network in self.networks])
        loss = 2 * parallel.mean(weight * (target - value).square())  # a mean over rows, a sum over networks
        return FeatureTerms(next_phi, loss, {"distance": -parallel.mean(value.detach())})

    def value(self, view: View, goal: View, network: nn.Module) -> Tensor:
        """−√max(‖φ(s) − φ(g)‖², 10⁻⁶), ``[N]``."""
        apart = (self.phi(view, network) - self.phi(goal, network)).square().sum(-1)
        return -apart.clamp_min(NEAREST).sqrt()


class Random(FeatureLoss):
    """φ keeps its initial weights."""

    learned = False

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """No loss."""
        return FeatureTerms(self.phi(there).detach())


class Identity(Random):
    """φ is the normalised observation."""

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        super().__init__(learner, generator)
        network = learner.model.backward_map
        assert isinstance(network, BackwardMap)
        linear = network.net[0]
        assert isinstance(linear, nn.Linear)
        if linear.weight.shape[0] != linear.weight.shape[1]:
            raise ConfigError(
                f"identity features are the {linear.weight.shape[1]} numbers that networks see of an "
                f"observation, and z_dim is {linear.weight.shape[0]}: set z_dim to "
                f"{linear.weight.shape[1]} (and fourier to 0)"
            )
        with torch.no_grad():
            linear.weight.copy_(torch.eye(len(linear.weight)))
            linear.bias.zero_()


FEATURES: dict[str, type[FeatureLoss]] = {
    "laplacian": Laplacian,
    "hilp": HILP,
    "byol": BYOL,
    "byol_gamma": BYOLGamma,
    "random": Random,
    "identity": Identity,
}
