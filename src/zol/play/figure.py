"""One drawn body: rigid parts that are moved, and a dark disc below it.

Each part is a mesh of its own whose position and rotation are set: a browser moves those without building
anything anew, which matters where it draws in software. The disc stands for a shadow: real ones would draw
the scene three more times per picture.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from zol.play.stage import Array, Stage

SHADOW = (30, 36, 48)
CORNERS = 24  # of the disc
Colour = tuple[int, int, int]


class Figure:
    """A body of a stage, drawn in one colour; ``scene`` is a viser scene."""

    def __init__(
        self,
        scene: Any,
        name: str,
        stage: Stage,
        colour: Colour,
        *,
        opacity: float | None = None,
        on_click: Callable[[Any], None] | None = None,
    ) -> None:
        """It is not seen before :meth:`show`."""
        self._frame = scene.add_frame(f"/{name}", show_axes=False, visible=False)
        self._parts = []
        for k, part in enumerate(stage.parts):
            shade = tuple(int(channel * part.shade) for channel in colour)
            handle = scene.add_mesh_simple(
                f"/{name}/{k}", part.vertices, part.faces, color=shade, opacity=opacity
            )
            if on_click is not None:
                handle.on_click(on_click)
            self._parts.append(handle)
        self._disc = None if stage.seen_from_above or opacity is not None else _disc(scene, name, stage.size)

    def show(self, visible: bool) -> None:
        """Whether it is there at all."""
        self._frame.visible = visible

    def place(self, where: Array, turned: Array) -> None:
        """Positions ``[parts, 3]`` and rotations wxyz ``[parts, 4]``, in the frame of the scene."""
        for handle, position, rotation in zip(self._parts, where, turned, strict=True):
            handle.position, handle.wxyz = position, rotation
        if self._disc is not None:
            self._disc.position = (float(where[0, 0]), float(where[0, 1]), 0.0)


def _disc(scene: Any, name: str, size: float) -> Any:
    angle = np.linspace(0, 2 * np.pi, CORNERS, endpoint=False)
    rim = 0.2 * size * np.stack([np.cos(angle), np.sin(angle), np.zeros(CORNERS)], axis=1)
    vertices = np.concatenate([np.zeros((1, 3)), rim])
    vertices[:, 2] = 0.004 * size  # above the floor and its lines
    k = np.arange(CORNERS)
    faces = np.stack([np.zeros(CORNERS, dtype=int), 1 + k, 1 + (k + 1) % CORNERS], axis=1)
    return scene.add_mesh_simple(f"/{name}/shadow", vertices, faces, color=SHADOW, opacity=0.22)
