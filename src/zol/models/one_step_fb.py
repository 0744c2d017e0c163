r"""One-step FB (arXiv 2602.11399): the successor measure of the data's own behaviour, improved once.

FB learns the measure of every policy π_z at once, and each of them moves while it is learned. Here F does not
depend on z: it is the measure of the behaviour β that made the data, whose next actions a' are in the data,

    M^β(s, a, ds') = Σ_t γ^t Pr(s_{t+1} ∈ ds' | s, a, β)  ≈  F(s, a)ᵀ B(s') ρ(ds'),
    M^β(s, a, ·) = δ(s') + γ M^β(s', a', ·)                 (SARSA: no maximum, nothing extrapolated)
    π_z(s) = argmax_a F(s, a)ᵀ z                            one step of policy improvement over β

After n steps of data instead of one (``n_step``) the same equation stays exact, because the data are β's.

It is cheap and stable, and its policies are one step of improvement away from the data: good where the data
are good or spread widely. **What its ratio means**: w_z(s) = (1 − γ) E_{s0}[F(s0, π_z(s0))]ᵀB(s) is the
occupancy of a policy that follows π_z once and β ever after, so off-policy values of π_z read off this model
are those of that mixture. Differences from the paper: B reads states, not pairs (s, a), as in the rest of
the family, and the measure has total mass 1/(1 − γ).
"""

from dataclasses import replace

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.data import Batch, BatchSpec
from zol.models.architecture import NetworkConfig
from zol.models.fb import FBConfig, FBLearner, shape_of
from zol.models.learner import View
from zol.models.pretraining import Pretraining
from zol.models.settings import plain_network


class OneStepFBConfig(FBConfig):
    """Sizes and settings of one-step FB: those of FB."""


class OneStepFBLearner(FBLearner):
    """Trains F and B on the data's own next actions, and the actor on F·z."""

    config: OneStepFBConfig

    @staticmethod
    def architecture(config: FBConfig) -> NetworkConfig:
        """F without z, B and an actor on one flat observation."""
        return plain_network(config, "one_step_fb", forward_reads_latent=False, **shape_of(config))

    @property
    def batches(self) -> BatchSpec:
        """Steps or stretches with the action that the data took next."""
        return replace(super().batches, next_action=True, continued=True)

    def next_action(self, batch: Batch, there: View, z: Tensor, generator: torch.Generator) -> Tensor:
        """a' in the Bellman equation: what the data did in s', where the episode goes on."""
        if batch.next_action is None or batch.last is None:
            raise DataError(
                "one-step FB learns from next actions, and this batch has none: draw it by the learner's own "
                "BatchSpec, from data with episodes"
            )
        if bool((batch.last & ~batch.terminated).any()):
            raise DataError(
                "one-step FB learns from pairs of steps, and these data hold episodes of a single step that "
                "was cut: leave them out (zol data subset)"
            )
        return batch.next_action


MODEL = Pretraining(
    name="one_step_fb",
    title="forward–backward representation of the data's own behaviour",
    config=OneStepFBConfig,
    learner=OneStepFBLearner,
    presets="zol.train.presets:one_step_fb.toml",
)
