"""Latents as a trained model met them in training, for collecting data and for searches.

A model is only good at latents like those that it was trained for. Every learner says how it draws them; here
that is asked of a checkpoint, whose learner is long gone.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from zol.fields import Layout
from zol.models import MODELS
from zol.models.learner import mixed_latents
from zol.models.network import Network
from zol.models.prior_features import PriorFeaturesLearner

Latents = Callable[[int, torch.Generator], Tensor]
"""So many latents, ``[N, d]``, drawn by a generator."""


def trained_latents(
    model: Network, facts: Mapping[str, Any], states: Tensor | None, layout: Layout, seed: int
) -> Latents:
    """How latents of a checkpoint's model are drawn; without ``states`` ``[N, D]`` uniformly on the sphere.

    ``facts`` are the checkpoint's, ``states`` stand for the data: goals are drawn among them, and rewards of
    a prior are placed by them. Models whose training we do not know, such as those of other projects, get
    goals for half of their latents.
    """
    if states is None:
        return lambda count, g: model.project(torch.randn(count, model.z_dim, generator=g))
    if facts.get("model") not in MODELS or not facts.get("settings"):
        return lambda count, g: mixed_latents(model.backward(_some(states, count, g)), 0.5, g)
    entry = MODELS[str(facts["model"])]
    learner = entry.learner(deepcopy(model), entry.config(**facts["settings"]))
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(layout)
        learner.recall(states, torch.Generator().manual_seed(seed))
    return lambda count, g: learner.practice_latents(_some(states, count, g), g)


def _some(states: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return states[torch.randint(len(states), (count,), generator=generator)]
