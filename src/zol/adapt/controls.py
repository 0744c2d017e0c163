"""What an adaptation has to beat: closed-form prompts, and random moves of the same size.

A search that moves z and is then judged by test returns can win by chance alone. ``perturbed`` moves z0 as
far as the search did, in random directions: a gain that it shares is not the search's doing.
"""

from dataclasses import replace

import torch
from torch import Tensor

from zol.adapt.result import Adapted
from zol.adapt.zol import ZOLConfig, zol
from zol.evidence import Evidence
from zol.models.base import Model
from zol.prompt import RewardPrompt


def prompted(
    model: Model, evidence: Evidence, how: RewardPrompt = "correlation", *, centre: bool = False
) -> Adapted:
    """The closed-form latent of every task, with the estimates that the ratio gives it."""
    name = "fb" if how == "correlation" else how.replace("_", "-")
    result = score(model, evidence, evidence.prompt(model, how, centre=centre))
    settings = {"how": how, "centre": centre}
    return replace(result, method=name + ("-centred" if centre else ""), configs=(settings,))


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


def score(model: Model, evidence: Evidence, z: Tensor) -> Adapted:
    """Latents ``[T, d]`` as they are, with the ratio's estimate and diagnostics of each."""
    return zol(model, evidence, z, ZOLConfig(steps=0, trust=0.0))
