"""A motion: what a body did, frame by frame, without the actions that made it do so."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Motion:
    """One clip: observations ``[T, D]`` and simulator states ``[T, P]``."""

    name: str
    obs: Tensor
    physics: Tensor
