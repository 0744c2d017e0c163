"""Pictures of the puzzle: buttons have the colours that a simulator state remembers."""

import numpy as np
from torch import Tensor

from zol.worlds.base import Image
from zol.worlds.dmc.render import Renderer, Simulated

COLOURS = np.array([[0.96, 0.26, 0.33, 1.0], [0.35, 0.55, 0.91, 1.0]])  # red, blue


class PuzzlePainter(Renderer):
    """Draws states whose last columns are the colours of the buttons."""

    def __init__(self, world: Simulated, geoms: list[int], width: int = 320, height: int = 320) -> None:
        super().__init__(world, width, height)
        self._geoms = geoms

    def frame(self, physics: Tensor) -> Image:
        """One state ``[P]`` as a picture ``[height, width, 3]``."""
        shown = physics.detach().cpu().numpy()[-len(self._geoms) :] > 0.5
        self._model.geom_rgba[self._geoms] = COLOURS[shown.astype(np.int64)]
        return super().frame(physics)
