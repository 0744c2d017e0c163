"""Settings of the ZOL search: the paper's defaults, and those of its authors' code."""

from typing import Literal

from pydantic import Field

from zol import measure
from zol.common.config import Config


class ZOLConfig(Config):
    """Settings of the search. Numeric ones may differ between the rows of a sweep; named ones may not."""

    learning_rate: float = Field(default=5e-4, gt=0)
    """η of Adam"""
    steps: int = Field(default=200, ge=0)
    """T"""
    chi_square: float = Field(default=0.001, ge=0)
    """λ_χ, weight of the ratio-variance penalty"""
    trust_region: float = Field(default=0.02, ge=0)
    """λ_z, weight of the trust region around Π(z0)"""
    clip: float = Field(default=100.0, gt=0)
    """w_max, largest weight"""
    grad_clip: float = Field(default=0.0, ge=0)
    """clip the gradient of each latent to this norm; 0 leaves it as it is"""
    patience: int = Field(default=0, ge=0)
    """stop a row after this many steps without a better objective; 0 never stops early"""

    centre_rewards: bool = True
    """subtract the mean reward of the sample"""
    shaping: measure.Shaping = "softplus"
    """how ratios become positive (authors: exp)"""
    sharpness: float = Field(default=1.0, gt=0)
    """k of softplus and exp"""
    clip_then_renormalise: bool = False
    """divide by the mean again after clipping (authors)"""
    self_normalised: bool = False
    """J = Σwr/Σw instead of mean(wr) (authors)"""
    trust_region_norm: Literal["squared", "mean"] = "squared"
    """‖·‖², or its mean over d (authors): λ_z then weighs d times less"""
    mu_states: Literal["start", "batch", "mix"] = "start"
    """states that μ averages over: start states, sampled data (authors), or half of each"""
    top_reward_share: float = Field(default=0.0, ge=0, le=1)
    """add up to a quarter more μ states from this share of highest rewards (authors: 0.05 at times)"""


AUTHORS = ZOLConfig(
    learning_rate=3e-3,
    steps=500,
    chi_square=0.01,
    trust_region=0.001,
    clip=20.0,
    patience=500,
    shaping="exp",
    clip_then_renormalise=True,
    self_normalised=True,
    trust_region_norm="mean",
    mu_states="batch",
)
"""The defaults of the authors' public code, as far as they differ from the paper."""

PER_ROW = ("learning_rate", "chi_square", "trust_region", "clip", "grad_clip", "steps", "patience")
"""Settings that may differ between the rows of one sweep."""
