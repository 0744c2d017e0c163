r"""Features that predict themselves: BYOL (Grill et al. 2020), BYOL-γ, and latent dynamics (RLDP).

With a predictor p that only the loss has, slow copies φ̄, orth(φ) = ½ mean_{i≠j} (φ_iᵀφ_j)² − mean_i φ_iᵀφ_i,

    byol         mean ‖p(φ(s), a) − φ̄(s')‖² + c_⊥ orth(φ(s))        what predicts its own next value
    byol_gamma   the same with a state a geometric number of steps later in place of s'
    rldp         mean_{k<H} ‖x_{k+1} − φ̄(s_{k+1})‖² + c_⊥ orth(φ(s_0)),   x_0 = φ(s_0),  x_{k+1} = p(x_k, a_k)

Squares are summed over dimensions, means are over rows. In ``rldp`` predictions are fed back for H =
``dynamics_horizon`` steps, and the mean is over the steps that the episode has.
"""

import torch
from torch import Tensor

from zol.common import parallel
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec
from zol.models.feature_base import FeatureLoss, FeatureTerms
from zol.models.layers import initialise
from zol.models.learner import NetworkLearner, View
from zol.models.losses import orthonormality_loss
from zol.models.nets import Predictor


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
        prediction = self.prediction(phi, batch, there)
        orthonormality = orthonormality_loss(phi)
        with torch.no_grad():
            next_phi = self.phi(there)
        terms = {"prediction": prediction.detach(), "orthonormality": orthonormality.detach()}
        return FeatureTerms(next_phi, prediction + self.config.orthonormality * orthonormality, terms)

    def prediction(self, phi: Tensor, batch: Batch, there: View) -> Tensor:
        """The mean squared error of what is predicted from φ(s)."""
        with torch.no_grad():
            target = self.phi(self.target_view(batch, there), self.slow)
        predicted = self.learner.run(self.predictor, phi, batch.action)
        return parallel.mean((predicted - target).square().sum(-1))

    def target_view(self, batch: Batch, there: View) -> View:
        """The state whose features are predicted."""
        return there


class BYOLGamma(BYOL):
    """The same for a state a geometric number of steps later."""

    @property
    def batches(self) -> BatchSpec:
        """Transitions with a later state of the same episode."""
        return BatchSpec(future=self.config.future_discount)

    def target_view(self, batch: Batch, there: View) -> View:
        """That later state."""
        return self.learner.view(self.later(batch))


class RLDP(BYOL):
    """The same for several steps, each predicted from the prediction before it."""

    @property
    def batches(self) -> BatchSpec:
        """Transitions with the steps that follow them."""
        return BatchSpec(path=self.config.dynamics_horizon)

    def prediction(self, phi: Tensor, batch: Batch, there: View) -> Tensor:
        """The mean squared error along the path."""
        if batch.path_obs is None or batch.path_action is None or batch.path_length is None:
            raise DataError(
                "RLDP predicts along the steps of an episode, and this batch has none: draw it by the "
                "learner's own BatchSpec, from data with episodes"
            )
        total, count = phi.new_zeros(()), phi.new_zeros(())
        for k in range(batch.path_obs.shape[1]):
            with torch.no_grad():
                target = self.phi(self.learner.view(batch.path_obs[:, k]), self.slow)
            phi = self.learner.run(self.predictor, phi, batch.path_action[:, k])
            there_is = (batch.path_length > k).to(phi.dtype)
            total = total + ((phi - target).square().sum(-1) * there_is).sum()
            count = count + there_is.sum()
        total, count = parallel.total(total, count)
        return total / count.detach()
