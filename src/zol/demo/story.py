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
from zol.session import Agent


class DemoConfig(Config):
    """Size of the demo. The defaults finish in under four minutes on two cores."""

    transitions: int = Field(default=200_000, ge=1000)
    """transitions of the behaviour data"""
    steps: int = Field(default=4_000, ge=1)
    """gradient steps of pretraining; 3 / (τ (1 − γ)) = 2,000 are what the measure needs to converge"""
    batch_size: int = Field(default=256, ge=2)
    """transitions per step"""
    hidden: int = Field(default=128, ge=8)
    """width of all networks"""
    z_dim: int = Field(default=50, ge=2)
    """size of a latent"""
    world_steps: int = Field(default=3_000, ge=1)
    """gradient steps of the learned world, in which the default method rehearses"""
    episodes: int = Field(default=256, ge=2)
    """paired test episodes per task and method"""
    film: bool = True
    """show a model of the zoo on film, too, where MuJoCo is installed"""
    seed: int = Field(default=0, ge=0)
    """seed of data, networks, training and test episodes"""


@dataclass(frozen=True)
class Story:
    """Everything the demo found, for the page and for whoever wants to look closer."""

    config: DemoConfig
    agent: Agent
    default: str  # the method that zol adapt takes for such a checkpoint
    methods: Mapping[str, Adapted]
    scores: report.Scores  # discounted, normalised returns
    reconstruction: Mapping[str, list[float]]  # method → correlation of Bᵀz with r on a uniform grid
    visited: Mapping[str, Tensor]  # method → [steps, tasks, episodes, 2]
    occupancy: Mapping[str, "Occupancy"]
    dataset: Dataset
    seconds: Mapping[str, float]

    @property
    def evidence(self) -> Evidence:
        """What the methods looked at."""
        return self.methods[self.default].evidence


@dataclass(frozen=True)
class Occupancy:
    """Where a method's policies go (``visited``), and where the model's ratio says they go: [T, cells]."""

    visited: Tensor
    predicted: Tensor
    mean_ratio: Tensor  # E_ρ[w], which should be 1, [T]

    @property
    def overlap(self) -> Tensor:
        """One minus the total-variation distance of the two ``[T]``; 1 would be perfect."""
        return 1 - 0.5 * (self.visited - self.predicted).abs().sum(-1)


def extra_columns(story: Story) -> dict[str, list[str]]:
    """What stands beside the returns, averaged over tasks.

    fit: correlation of B(s)ᵀz with the reward; move: ‖z − z0‖/‖z0‖; overlap: of the visited states with those
    that the model's ratio predicts; ratio: its mean, which should be 1.
    """
    found, plain = story.methods, story.methods["fb"].z[0]
    moves = {name: (a.z[0] - plain).norm(dim=-1) / plain.norm(dim=-1) for name, a in found.items()}
    return {
        "fit": [f"{np.mean(story.reconstruction[name]):.2f}" for name in found],
        "move": [f"{moves[name].mean():.2f}" for name in found],
        "overlap": [f"{story.occupancy[name].overlap.mean():.2f}" for name in found],
        "ratio": [f"{story.occupancy[name].mean_ratio.mean():.2f}" for name in found],
    }


def verdict(scores: report.Scores, default: str, control: str = "perturb-far") -> str:
    """One sentence about the result, computed from the numbers, whichever way it went."""
    means = {name: float(values.mean()) for name, values in scores.values.items()}
    gain, chance = report.paired(scores, default, "fb"), report.paired(scores, control, "fb")
    if gain.low > 0:
        word = "beats plain FB"
    elif gain.high < 0:
        word = "loses to plain FB"
    elif gain.value == 0:
        word = "keeps plain FB's latents"
    else:
        word = "cannot be told from plain FB"
    best = max(means, key=lambda name: (means[name], name == default))
    rest = f"the best is {best} ({means[best]:.3f})" if best != default else "nothing here does better"
    return (
        f"The default, {default}, {word}: it earns {means[default]:.3f} where FB earns {means['fb']:.3f} "
        f"(change {signed(gain)}); random moves as long as its own change {signed(chance)}, the paper's "
        f"search {signed(report.paired(scores, 'zol', 'fb'))}; {rest}."
    )


def signed(interval: report.Interval) -> str:
    """A change with its interval, each number with its sign."""
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
