"""Latents worth a look before any search: prompts, goals, and latents as in training.

GPI chooses among them at every step, rehearsal plays them in the learned world, and the comparison of
offline estimates (zol.bench.ranking) asks how well each of them can be judged.
"""

import torch
from torch import Tensor

from zol import prompt
from zol.evidence import Evidence
from zol.models.base import Model

WAYS: tuple[prompt.RewardPrompt, ...] = ("correlation", "ridge", "weighted")


def prompt_latents(model: Model, evidence: Evidence) -> Tensor:
    """Closed-form prompts ``[T, K, d]`` of raw and of centred rewards; the first is plain FB's.

    Prompts are centred only if every task's reward varies on the sample: a constant says nothing once it is
    centred. K is 6, or 3 without the centred ones.
    """
    varied = bool((evidence.rewards.amax(-1) > evidence.rewards.amin(-1)).all())
    centred = (False, True) if varied else (False,)
    return torch.stack([evidence.prompt(model, how, centre=c) for how in WAYS for c in centred], dim=1)


def goal_latents(
    model: Model,
    evidence: Evidence,
    count: int,
    *,
    among: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Π(B(s)) ``[T, count, d]`` of the ``count`` sampled states with the highest rewards of each task.

    With ``among``, ``count`` of the best ``among`` states are drawn at random instead: the very best states
    may all be of one kind.
    """
    best = evidence.rewards.topk(min(among or count, len(evidence.obs)), dim=-1).indices  # [T, among]
    if among is not None:
        best = best[:, torch.randperm(best.shape[1], generator=generator)[:count]]
    return prompt.goal(model, evidence.obs[best.flatten()]).reshape(*best.shape, -1)


def random_latents(model: Model, count: int, generator: torch.Generator) -> Tensor:
    """Π(ε) ``[count, d]``, latents as in training."""
    return model.project(torch.randn(count, model.z_dim, generator=generator))


def candidate_latents(model: Model, evidence: Evidence, *more: Tensor, goals: int = 4) -> Tensor:
    """A pool ``[T, K, d]`` for every task: prompts, ``more`` latents ``[T, d]``, and goals."""
    own = [latent.unsqueeze(1) for latent in more]
    return torch.cat([prompt_latents(model, evidence), *own, goal_latents(model, evidence, goals)], dim=1)
