"""Latents over time: hold one, switch between them, glide from one to the next, follow a motion.

A schedule is a function of the step (and, where it matters, of the current observation) that gives the
latent to act with. It is asked once per step for all environments: ``step`` may be a number, or a tensor
of step numbers ``[n]`` when environments are at different times; the answer is ``[d]`` or ``[n, d]``.

    walk_then_sit = switch([walk, sit], at=[100])
    arms_up = glide(stand, raise_arms, begin=50, end=80)
    dance = follow(prompt.tracking(model, motion))
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from zol import prompt
from zol.common.errors import DataError
from zol.models.base import Model


class Schedule(Protocol):
    """Latents as a function of time and, if need be, of state."""

    def __call__(self, step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        """The latent of this step, ``[d]``, or one per environment, ``[n, d]``."""


def hold(z: Tensor) -> Schedule:
    """Always the same latent ``[d]`` (or ``[n, d]``, one per environment)."""

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        return z.expand(*step.shape, z.shape[-1]) if isinstance(step, Tensor) and z.ndim == 1 else z

    return schedule


def switch(latents: Sequence[Tensor], at: Sequence[int]) -> Schedule:
    """``latents[0]`` until step ``at[0]``, then ``latents[1]`` until ``at[1]``, and so on."""
    if len(latents) != len(at) + 1 or sorted(at) != list(at):
        raise DataError(
            f"{len(latents)} latents switch at {len(latents) - 1} increasing steps; got {list(at)}"
        )
    table, times = torch.stack(list(latents)), torch.tensor(list(at), dtype=torch.int64)

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        now = torch.as_tensor(step, dtype=torch.int64)
        return table[torch.bucketize(now, times, right=True)]

    return schedule


def glide(first: Tensor, last: Tensor, begin: int, end: int) -> Schedule:
    """From one latent to another along the sphere between steps ``begin`` and ``end``."""
    if begin >= end:
        raise DataError(f"a glide takes at least one step: begin {begin} must come before end {end}")

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        share = (torch.as_tensor(step, dtype=first.dtype) - begin) / (end - begin)
        return slerp(first, last, share.clamp(0.0, 1.0))

    return schedule


def follow(latents: Tensor, *, loop: bool = False) -> Schedule:
    """One latent per step from ``[L, d]``, as tracking prompts give; then the last, or from the start."""
    if latents.ndim != 2 or len(latents) == 0:
        raise DataError(f"latents to follow have shape [steps ≥ 1, d], got {tuple(latents.shape)}")

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        now = torch.as_tensor(step, dtype=torch.int64)
        return latents[now % len(latents) if loop else now.clamp_max(len(latents) - 1)]

    return schedule


def reach(model: Model, goal: Tensor) -> Schedule:
    """HILP's way to a goal ``[D]``: at every step the direction from where the agent is now."""

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        if obs is None:
            raise DataError("the latent towards a goal depends on the state: call schedule(step, obs)")
        return prompt.towards(model, obs, goal)

    return schedule


def slerp(first: Tensor, last: Tensor, share: Tensor) -> Tensor:
    r"""The point at ``share`` ∈ [0, 1] on the great circle from ``first`` to ``last`` ``[d]``, ``[..., d]``.

        sin((1 − t)θ)/sin θ · a + sin(tθ)/sin θ · b,     θ the angle between a and b.

    Lengths are interpolated, so latents off the sphere are allowed. Opposite latents have no shortest
    way between them and are refused.
    """
    a, b = first / first.norm(), last / last.norm()
    theta = torch.arccos((a * b).sum().clamp(-1.0, 1.0))
    if float(torch.pi - theta) < 1e-3:
        raise DataError("these latents are opposite: there is no shortest way between them on the sphere")
    t = share.unsqueeze(-1)
    if float(theta) < 1e-4:  # the formula is 0/0 for equal directions; a straight line is the same there
        direction = (1 - t) * a + t * b
    else:
        direction = (torch.sin((1 - t) * theta) * a + torch.sin(t * theta) * b) / torch.sin(theta)
    return ((1 - t) * first.norm() + t * last.norm()) * direction
