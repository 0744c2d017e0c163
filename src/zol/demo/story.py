"""What the demo is told and what it found; figures, tables and the page read it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import Field
from torch import Tensor

from zol import report
from zol.adapt import Adapted
from zol.common.config import Config
from zol.data import Dataset
from zol.evidence import Evidence
from zol.models.network import Network
from zol.value.accuracy import told


class DemoConfig(Config):
    """Size of the demo. The defaults finish in under four minutes on two cores."""

    transitions: int = Field(default=200_000, ge=1000)
    """transitions of the behaviour data"""
    steps: int = Field(default=4_000, ge=1)
    """gradient steps of pretraining"""
    batch_size: int = Field(default=256, ge=2)
    """transitions per step"""
    hidden: int = Field(default=256, ge=8)
    """width of all networks"""
    z_dim: int = Field(default=50, ge=2)
    """size of a latent"""
    episodes: int = Field(default=256, ge=2)
    """paired test episodes per task and method"""
    seed: int = Field(default=0, ge=0)
    """seed of data, networks, training and test episodes"""


@dataclass(frozen=True)
class Story:
    """Everything the demo found, for the page and for whoever wants to look closer."""

    config: DemoConfig
    model: Network
    evidence: Evidence
    methods: Mapping[str, Adapted]
    scores: report.Scores  # discounted, normalised returns
    reconstruction: Mapping[str, list[float]]  # method → correlation of Bᵀz with r on a uniform grid
    visited: Mapping[str, Tensor]  # method → [steps, tasks, episodes, 2]
    dataset: Dataset
    seconds: Mapping[str, float]


def caveat(story: Story) -> str:
    """What is said below the tables: how to read intervals, and how far to trust the column "est."."""
    return f"{report.caveat(story.scores)}; est. is made {told('ratio', 'donut')}"


def extra_columns(story: Story) -> dict[str, list[str]]:
    """What stands beside the returns, averaged over tasks.

    fit: correlation of B(s)ᵀz with the reward; move: ‖z − z0‖/‖z0‖; est.: the ratio's offline estimate of
    the mean; ESS: effective sample size of that estimate.
    """
    found = story.methods
    moved = {name: (a.z[0] - found["fb"].z[0]).norm(dim=-1) for name, a in found.items()}
    length = found["fb"].z[0].norm(dim=-1)
    return {
        "fit": [f"{np.mean(story.reconstruction[name]):.2f}" for name in found],
        "move": [f"{(moved[name] / length).mean():.2f}" for name in found],
        "est.": [f"{a.estimate[0].mean():.2f}" for a in found.values()],
        "ESS": [f"{a.diagnostics['ess'][0].mean():.2f}" for a in found.values()],
    }
