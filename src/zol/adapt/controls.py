"""What a search has to beat beside the prompt: random moves of the same size.

A search that moves z and is then judged by test returns can win by chance alone. ``perturbed`` moves z0 as
far as the search did, in random directions: a gain that it shares is not the search's doing.
"""

from dataclasses import replace

import torch
from torch import Tensor

from zol.adapt.problem import Method, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import ON_THE_SPHERE, score, search
from zol.adapt.zol_settings import ZOLConfig
from zol.common.config import Config
from zol.evidence import Evidence
from zol.models.base import Model


class PerturbConfig(Config):
    """Settings of the control: those of the search whose moves it copies in size."""

    as_far_as: ZOLConfig = ZOLConfig()
    """the search whose moves are copied in size"""


def perturbed(
    model: Model, evidence: Evidence, start: Tensor, distance: Tensor, generator: torch.Generator
) -> Adapted:
    """Π(z0) moved by ``distance`` ``[T]`` (relative to its length) in a random direction of the sphere."""
    z0 = model.project(start)
    radius = z0.norm(dim=-1, keepdim=True)
    noise = torch.randn(z0.shape, generator=generator, dtype=z0.dtype)
    tangent = noise - (noise * z0).sum(-1, keepdim=True) / radius.square() * z0
    tangent = tangent / tangent.norm(dim=-1, keepdim=True)
    # A chord of length c·R on a sphere of radius R spans the angle 2·asin(c/2).
    angle = 2 * torch.asin((distance / 2).clamp(0, 1)).unsqueeze(-1)
    z = angle.cos() * z0 + angle.sin() * radius * tangent
    result = score(model, evidence, z)
    return replace(result, method="perturb", start=z0, configs=({"distance": distance.tolist()},))


def random_moves(problem: Problem, settings: PerturbConfig) -> Adapted:
    """Plain FB's latents, moved as far as ZOL moved them, in random directions."""
    moved = search(problem, settings.as_far_as).distance[0]
    generator = problem.generator("perturb")
    return perturbed(problem.model, problem.evidence, problem.start, moved, generator)


PERTURB = Method(random_moves, PerturbConfig(), revision=2, correction=ON_THE_SPHERE)
