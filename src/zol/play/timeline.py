"""A timeline of latents: one after the other, gliding from each to the next, and again from the beginning."""

from collections.abc import Sequence
from itertools import accumulate

from torch import Tensor

from zol.schedule import Schedule, glide, hold, switch


def repeated(latents: Sequence[Tensor], lengths: Sequence[int], blend: int = 0) -> Schedule:
    """Each latent ``[d]`` for so many steps, of which the first ``blend`` are a glide from the one before.

    At the end it jumps back to the first.
    """
    ends = list(accumulate(lengths))
    held = switch(latents, ends[:-1]) if len(latents) > 1 else hold(latents[0])
    glides = [
        (begin, min(begin + blend, end), before, after)
        for before, after, begin, end in zip(latents, latents[1:], ends, ends[1:], strict=False)
    ]

    def schedule(step: int | Tensor, obs: Tensor | None = None) -> Tensor:
        now = int(step) % ends[-1]
        for begin, end, before, after in glides:
            if begin <= now < end:
                return glide(before, after, begin, end)(now)
        return held(now)

    return schedule
