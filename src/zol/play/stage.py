"""What there is to draw of a world: the parts of its body as meshes, and what stands around it."""

from dataclasses import dataclass
from typing import Any, Protocol

import mujoco
import numpy as np
import trimesh
from numpy.typing import NDArray
from torch import Tensor

from zol.play.shapes import merged
from zol.worlds.base import World
from zol.worlds.donut import INNER, OUTER

Array = NDArray[Any]
DRAWN_GROUPS = 3  # MuJoCo hides geoms of groups from here on


@dataclass(frozen=True)
class Part:
    """A rigid piece, in its own frame."""

    vertices: Array  # [V, 3]
    faces: Array  # [F, 3]
    shade: float = 1.0  # brightness beside the other parts


class Stage(Protocol):
    """What the scene asks of a world."""

    parts: list[Part]
    around: list[Part]  # what does not move, in the world's frame
    size: float  # half of the width that a body needs, in metres
    height: float  # of the middle of the body
    follows: tuple[bool, bool]  # whether it travels far along x, and along y
    seen_from_above: bool

    def poses(self, physics: Tensor) -> tuple[Array, Array]:
        """Positions ``[n, parts, 3]`` and rotations wxyz ``[n, parts, 4]`` of states ``[n, P]``."""

    def roots(self, physics: Tensor) -> Array:
        """Where the bodies are, ``[n, 3]``."""


class PointStage:
    """The donut: a ball on an annulus."""

    def __init__(self) -> None:
        ball = trimesh.creation.icosphere(subdivisions=2, radius=0.06)
        ring = trimesh.creation.annulus(r_min=INNER, r_max=OUTER, height=0.02, sections=96)
        ring.apply_translation((0, 0, -0.02))
        self.parts = [_part(ball)]
        self.around = [_part(ring, 0.93)]
        self.size, self.height, self.follows, self.seen_from_above = OUTER, 0.0, (False, False), True

    def poses(self, physics: Tensor) -> tuple[Array, Array]:
        """The ball rolls on the plane z = 0."""
        where = self.roots(physics)[:, None]
        return where, np.tile([1.0, 0.0, 0.0, 0.0], (len(where), 1, 1))

    def roots(self, physics: Tensor) -> Array:
        """The position itself."""
        flat = physics.detach().cpu().numpy()[:, :2]
        return np.concatenate([flat, np.full((len(flat), 1), 0.06)], axis=1)


class MujocoStage:
    """A body of a MuJoCo model, part by part."""

    def __init__(self, model: Any) -> None:
        self._model, self._data = model, mujoco.MjData(model)
        mujoco.mj_kinematics(model, self._data)
        drawn = [g for g in range(model.ngeom) if self._is_drawn(g)]
        moving = [b for b in range(model.nbody) if model.body_weldid[b] != 0]
        self._bodies = [b for b in moving if any(model.geom_bodyid[g] == b for g in drawn)]
        self.parts = [
            Part(
                *merged(model, [g for g in drawn if model.geom_bodyid[g] == b]),
                0.72 if "left" in model.body(b).name or model.body(b).name.startswith("f") else 1.0,
            )
            for b in self._bodies
        ]
        self.around = [Part(*merged(model, [g]), 0.75) for g in drawn if model.geom_bodyid[g] == 0]
        joints = [j for j in range(model.njnt) if model.body_parentid[model.jnt_bodyid[j]] == 0]
        free = any(int(model.jnt_type[j]) == int(mujoco.mjtJoint.mjJNT_FREE) for j in joints)
        travels = [j for j in joints if _slides(model, j) and not model.jnt_limited[j]]
        along_x = any(abs(model.jnt_axis[j][0]) > 0.5 for j in travels)
        self.follows = (free or along_x, free)
        reach = np.linalg.norm(self._data.xpos[self._bodies] - self._data.xpos[self._bodies[0]], axis=1)
        own = max(float(np.abs(part.vertices).max()) for part in self.parts)
        self.seen_from_above = not self.follows[0]
        ranges = [float(np.abs(model.jnt_range[j]).max()) for j in joints if model.jnt_limited[j]]
        self.size = max(ranges) * 1.1 if ranges and self.seen_from_above else float(reach.max()) + own
        self.height = 0.0 if self.seen_from_above else float(self._data.xpos[self._bodies[0], 2]) * 0.7

    def _is_drawn(self, geom: int) -> bool:
        grounds = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
        plane = int(self._model.geom_type[geom]) in grounds  # the scene has floors of its own
        visible = self._model.geom_rgba[geom, 3] > 0 and self._model.geom_group[geom] < DRAWN_GROUPS
        return bool(visible and not plane)

    def poses(self, physics: Tensor) -> tuple[Array, Array]:
        """Forward kinematics of every state."""
        rows = physics.detach().cpu().numpy()
        where, turned = np.empty((len(rows), len(self.parts), 3)), np.empty((len(rows), len(self.parts), 4))
        for k, row in enumerate(rows):
            self._data.qpos[:] = row[: self._model.nq]
            mujoco.mj_kinematics(self._model, self._data)
            where[k], turned[k] = self._data.xpos[self._bodies], self._data.xquat[self._bodies]
        return where, turned

    def roots(self, physics: Tensor) -> Array:
        """The first moving part."""
        return self.poses(physics)[0][:, 0]


def stage_of(world: World) -> Stage:
    """How a world is drawn; :func:`zol.play.body.body_of` has refused those that cannot be."""
    domain = getattr(world, "domain", None)
    return PointStage() if domain is None else MujocoStage(domain.model)


def _part(mesh: Any, shade: float = 1.0) -> Part:
    return Part(np.asarray(mesh.vertices), np.asarray(mesh.faces), shade)


def _slides(model: Any, joint: int) -> bool:
    return int(model.jnt_type[joint]) == int(mujoco.mjtJoint.mjJNT_SLIDE)
