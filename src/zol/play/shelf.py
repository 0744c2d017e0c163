"""Latents that a visitor has kept: points between two of them, and one after the other."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.models.base import Latent
from zol.play.timeline import repeated
from zol.schedule import Schedule, slerp


class Shelf(dict[str, Latent]):
    """Kept latents by name."""

    def keep(self, name: str, latent: Latent) -> None:
        """Put a latent on the shelf; one of the same name makes room for it."""
        if not name.strip():
            raise DataError("a latent on the shelf needs a name")
        self[name.strip()] = latent

    def take(self, name: str) -> Tensor:
        """A kept latent ``[d]``."""
        if name not in self:
            raise DataError(f"no latent called '{name}' is on the shelf: keep it first")
        return self[name].z

    def between(self, first: str, last: str, share: float) -> Tensor:
        """The latent at ``share`` of the way from one kept latent to another, on the sphere."""
        a, b = self.take(first), self.take(last)
        return slerp(a, b, torch.tensor(float(share), dtype=a.dtype))

    def timeline(self, parts: Sequence[tuple[str, float]], glide: float, timestep: float) -> Schedule:
        """Each named latent for some seconds, with a glide of ``glide`` seconds at the beginning of each."""
        if not parts:
            raise DataError("the timeline is empty: keep latents first, and add them to it")
        lengths = [max(1, round(seconds / timestep)) for _, seconds in parts]
        return repeated([self.take(name) for name, _ in parts], lengths, round(glide / timestep))
