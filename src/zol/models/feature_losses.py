r"""How features of successor features are learned, by name; a loss is one class and one line of ``FEATURES``.

laplacian           mean (φ(s) − φ(s'))² + 2 c_⊥ orth(φ(s)): smooth along the data (Wu et al. 2019),
                    orth(φ) = ½ mean_{i≠j} (φ_iᵀφ_j)² − mean_i φ_iᵀφ_i; the first mean is over dimensions, too
hilp, icvf          values of goals: zol.models.goal_features
byol, byol_gamma,
rldp                what predicts itself: zol.models.predicted_features
random              none: φ keeps its initial weights
identity            none: φ is the normalised observation
"""

from typing import Literal

import torch
from torch import nn

from zol.common import parallel
from zol.common.config import ConfigError
from zol.data import Batch
from zol.models.feature_base import FeatureLoss, FeatureTerms
from zol.models.goal_features import HILP, ICVF
from zol.models.learner import NetworkLearner, View
from zol.models.losses import orthonormality_loss
from zol.models.nets import BackwardMap
from zol.models.predicted_features import BYOL, RLDP, BYOLGamma

FeatureName = Literal["laplacian", "hilp", "icvf", "byol", "byol_gamma", "rldp", "random", "identity"]


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
    "icvf": ICVF,
    "byol": BYOL,
    "byol_gamma": BYOLGamma,
    "rldp": RLDP,
    "random": Random,
    "identity": Identity,
}
