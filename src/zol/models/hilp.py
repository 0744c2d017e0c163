r"""HILP: successor features of features whose distances are numbers of steps (Park et al. 2024).

    ‖φ(s) − φ(g)‖  ≈  steps from s to g, discounted: −V*(s, g) of the goal-conditioned problem with reward −1

by the loss ``hilp`` of zol.models.goal_features. Rewards are regressed on the centred features φ(s'), as in
the td_jepa repository; the other conventions, regression on differences φ(s') − φ(s) and the direction to a
goal, are methods of their own (zol.adapt.directions). A few dimensions of such features hold nearly all of
their variance: ``sphered`` says what can be done about it (zol.models.successor_features).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from zol.models.architecture import NetworkConfig
from zol.models.pretraining import Pretraining
from zol.models.successor_features import FeatureConfig, SuccessorFeaturesLearner, centred_network


class HILPConfig(FeatureConfig):
    """Sizes and settings of HILP; the defaults are those of the td_jepa repository where it names them."""

    centred: bool = True
    """subtract the mean of the features"""
    backward_norm: bool = False
    """put the features on a sphere, where distances end"""


class HILPLearner(SuccessorFeaturesLearner):
    """Trains the Hilbert representation, its successor features and the actor."""

    config: HILPConfig
    shown: ClassVar[Mapping[str, str]] = {
        "loss": "loss",
        "hilbert": "features",
        "distance": "distance",
        "psi": "successor_features",
        "residual": "health/bellman_residual",
    }

    @classmethod
    def feature_name(cls, config: Any) -> str:
        """Always these."""
        return "hilp"

    @staticmethod
    def architecture(config: HILPConfig) -> NetworkConfig:
        """ψ, φ and an actor on one flat observation."""
        return centred_network(config, "hilp", sphered=config.sphered)


MODEL = Pretraining(
    name="hilp",
    title="HILP: successor features of distances in time",
    config=HILPConfig,
    learner=HILPLearner,
    presets="zol.train.presets:hilp.toml",
    prompt="least_squares",
)
