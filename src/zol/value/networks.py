"""Small networks that are trained for many latents or tasks at once, as one batched program.

K problems with P members each are K·P networks of the same shape: weights are ``[K·P, in, out]``. All
problems begin with the same weights and see the same rows, and no number of one enters another, so that a
problem's result does not depend on its company, to the last bit. (A single matrix product is rounded in
another way than one of several: hence two members at least.)
"""

from collections.abc import Callable, Iterator

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor, nn

from zol.common.config import Config
from zol.common.progress import Ticker
from zol.models.layers import EnsembleLayerNorm, EnsembleLinear, initialise


class NetworkSettings(Config):
    """Sizes and training of the networks that an estimator learns; one setting for all tasks."""

    hidden: int = Field(default=64, ge=1)
    """units of a hidden layer"""
    layers: int = Field(default=2, ge=0)
    """hidden layers; with none, functions are linear in the products of state and action columns"""
    members: int = Field(default=2, ge=2)
    """networks per latent, of other first weights, whose disagreement is part of the interval"""
    steps: int = Field(default=200, ge=1)
    """gradient steps"""
    batch: int = Field(default=256, ge=1)
    """transitions per step"""
    learning_rate: float = Field(default=1e-3, gt=0)
    """of Adam; falls to zero along the way"""


class Networks(nn.Module):
    """K·P networks from ``inputs`` to ``outputs`` numbers, whose first output is zero everywhere."""

    def __init__(
        self, inputs: int, outputs: int, problems: int, settings: NetworkSettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        members, hidden = settings.members, settings.hidden
        parts: list[nn.Module] = []
        for _ in range(settings.layers):
            parts += [EnsembleLinear(inputs, hidden, members), EnsembleLayerNorm(hidden, members), nn.ReLU()]
            inputs = hidden
        last = EnsembleLinear(inputs, outputs, members)
        self.net = nn.Sequential(*parts, last)
        initialise(self.net, generator)
        nn.init.zeros_(last.weight)
        for part in self.net:
            if isinstance(part, EnsembleLinear | EnsembleLayerNorm):
                part.weight = nn.Parameter(part.weight.detach().repeat(problems, 1, 1))
                part.bias = nn.Parameter(part.bias.detach().repeat(problems, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """``[N, in]`` for all networks, or ``[K·P, N, in]`` → ``[K·P, N, out]``."""
        y: Tensor = self.net(x)
        return y

    def features(self, x: Tensor) -> Tensor:
        """What the last layer is linear in, with a one at the end: ``[K·P, N, hidden + 1]``."""
        y: Tensor = self.net[:-1](x)
        y = y.expand(len(self.last.weight), *y.shape[-2:])
        return torch.cat([y, y.new_ones(1).expand(*y.shape[:-1], 1)], dim=-1)

    @property
    def last(self) -> EnsembleLinear:
        """The last layer."""
        layer = self.net[-1]
        assert isinstance(layer, EnsembleLinear)
        return layer


class Standardised:
    """(x − mean) / std of columns, as they are in a sample ``[N, X]``; constant columns are left alone."""

    def __init__(self, sample: Tensor) -> None:
        self.mean, spread = sample.mean(0), sample.std(0, correction=0)
        self.spread = torch.where(spread > 1e-6 * (1 + self.mean.abs()), spread, 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        """The same columns in their usual units."""
        return (x - self.mean) / self.spread


def schedule(
    optimisers: list[torch.optim.Optimizer], settings: NetworkSettings, progress: Progress | None, what: str
) -> Iterator[int]:
    """The steps of a training, while the optimisers' learning rates fall linearly to zero."""
    bar = Ticker(progress, what, settings.steps)
    for step in range(settings.steps):
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * (1.0 - step / settings.steps)
        yield step
        bar.advance()
    bar.finish()


def minimise_whole(loss: Callable[[], Tensor], module: nn.Module, rounds: int = 500) -> None:
    """Minimise a smooth convex function of all parameters to the end, over the whole sample (L-BFGS)."""
    optimiser = torch.optim.LBFGS(
        module.parameters(),
        max_iter=rounds,
        tolerance_grad=1e-11,
        tolerance_change=0.0,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value

    optimiser.step(closure)
