"""Pictures of simulator states, without a display.

MuJoCo picks its OpenGL back end when it is first imported; here the context is made directly, so that
importing a world never touches OpenGL and the order of imports does not matter.
"""

import copy
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Protocol, Self

import mujoco
import numpy as np
from torch import Tensor

from zol.common.errors import WorldError
from zol.worlds.base import Image
from zol.worlds.dmc.domain import Domain

BACKENDS = ("egl", "osmesa")
FONT_SCALE = 100
GOAL = np.array([0.2, 0.9, 0.3, 0.6], dtype=np.float32)  # colour of the place to be at

# Draws into a tiny context. It runs in a process of its own, because a broken driver may crash it.
PROBE = """
import mujoco
from mujoco.{backend} import GLContext
context = GLContext(8, 8)
context.make_current()
mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), {font_scale})
"""


@cache
def render_backend() -> str | None:
    """The first of EGL and OSMesa that draws on this machine, or None; ``MUJOCO_GL`` can pick one."""
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    return next(filter(_draws, [chosen] if chosen in BACKENDS else BACKENDS), None)


def _draws(backend: str) -> bool:
    command = [sys.executable, "-c", PROBE.format(backend=backend, font_scale=FONT_SCALE)]
    settings = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    try:
        return subprocess.run(command, env=settings, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class Simulated(Protocol):
    """A world that MuJoCo simulates."""

    domain: Domain


class Renderer:
    """Draws states of one world. Use it in a ``with`` block: OpenGL wants to be closed explicitly."""

    def __init__(
        self, world: Simulated, width: int = 320, height: int = 320, camera: int | None = None
    ) -> None:
        backend = render_backend()
        if backend is None:
            raise WorldError(
                "drawing needs OpenGL without a display, and neither EGL nor OSMesa works here: install one, "
                "for example 'apt-get install libegl1' or 'apt-get install libosmesa6'"
            )
        self._model = copy.copy(world.domain.model)
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = width, height
        self._data = mujoco.MjData(self._model)
        self._context = import_module(f"mujoco.{backend}").GLContext(width, height)
        self._context.make_current()
        self._gpu = mujoco.MjrContext(self._model, FONT_SCALE)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = world.domain.camera if camera is None else camera
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._place: tuple[float, ...] | None = None

    def mark(self, place: tuple[float, ...] | None) -> None:
        """Show this point as a green disc in the frames that follow; None shows none."""
        self._place = place

    def frame(self, physics: Tensor) -> Image:
        """One state ``[P]`` as a picture ``[height, width, 3]``."""
        self._context.make_current()
        nq = self._model.nq
        self._data.qpos[:] = physics.detach().cpu().numpy()[:nq]
        mujoco.mj_forward(self._model, self._data)
        every = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, self._data, self._option, None, self._camera, every, self._scene)
        if self._place is not None:
            self._draw_place(self._place)
        mujoco.mjr_render(self._area, self._scene, self._gpu)
        picture: Image = np.empty((self._area.height, self._area.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(picture, None, self._area, self._gpu)
        return picture[::-1]  # OpenGL starts at the bottom

    def _draw_place(self, place: tuple[float, ...]) -> None:
        """One more geometry in the scene: a flat disc, a twentieth as wide as the model."""
        radius = 0.025 * self._model.stat.extent
        disc = self._scene.geoms[self._scene.ngeom]
        size, where = np.array([radius, radius, 0.02 * radius]), np.array(place, dtype=np.float64)
        mujoco.mjv_initGeom(disc, mujoco.mjtGeom.mjGEOM_CYLINDER, size, where, np.eye(3).flatten(), GOAL)
        self._scene.ngeom += 1

    def close(self) -> None:
        """Give the OpenGL context back."""
        self._gpu.free()
        self._context.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def render(
    world: Simulated, physics: Tensor, width: int = 320, height: int = 320, camera: int | None = None
) -> Image:
    """States ``[T, P]`` as pictures ``[T, height, width, 3]``."""
    with Renderer(world, width, height, camera) as renderer:
        return np.stack([renderer.frame(row) for row in physics])
