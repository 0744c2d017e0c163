r"""Laplacian successor features (Wu et al. 2019; Touati et al. 2023): smooth features and what they sum to.

Features φ change little along the data's transitions and are orthonormal on its states, like the smoothest
eigenvectors of the graph Laplacian of the data's random walk:

    φ:   minimise  E[(φ(s) − φ(s'))²]  subject to  E[φ φᵀ] = I

What is done with them is said in zol.models.successor_features, their loss in zol.models.feature_losses.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from zol.common.errors import CheckpointError
from zol.models.architecture import NetworkConfig
from zol.models.pretraining import Pretraining
from zol.models.settings import PretrainingConfig, plain_network
from zol.models.successor_features import SuccessorFeaturesLearner


class LaplacianConfig(PretrainingConfig):
    """Sizes and settings of Laplacian successor features; F is ψ, B stands for the features φ."""

    orthonormality: float = Field(default=1.0, ge=0)
    """c_⊥: weight of the orthonormality of the features"""
    covariance_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast the running mean of φ φᵀ follows"""


class LaplacianLearner(SuccessorFeaturesLearner):
    """Trains features, their successor features and the actor."""

    config: LaplacianConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "smooth": "smoothness",
        "ortho": "orthonormality",
        "psi": "successor_features",
        "residual": "health/bellman_residual",
    }
    pessimism = 0.0
    hindsight_share = 0.0

    @classmethod
    def feature_name(cls, config: Any) -> str:
        """Always these."""
        return "laplacian"

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


MODEL = Pretraining(
    name="laplacian",
    title="Laplacian successor features",
    config=LaplacianConfig,
    learner=LaplacianLearner,
    presets="zol.train.presets:laplacian.toml",
    prompt="least_squares",
)
