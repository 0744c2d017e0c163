"""Meshes of a MuJoCo model's geoms, as coarse as a page can afford.

mjviser makes a capsule of 4,096 triangles; a walker of seven would be drawn with 29,000, most of them smaller
than a pixel, and a browser without a graphics card needs its time for the person who turns a slider. Round
shapes are made here with a few hundred; everything else is mjviser's.
"""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import trimesh
from mjviser.conversions import merge_geoms
from numpy.typing import NDArray

ROUND = (8, 20)  # sections of a capsule along and around
Mesh = tuple[NDArray[Any], NDArray[Any]]  # vertices [V, 3] and faces [F, 3]


def merged(model: Any, geoms: Sequence[int]) -> Mesh:
    """One mesh of these geoms, in the frame of their body."""
    vertices, faces, count = [], [], 0
    for geom in geoms:
        own, corners = _mesh(model, geom)
        vertices.append(own)
        faces.append(corners + count)
        count += len(own)
    return np.concatenate(vertices), np.concatenate(faces)


def _mesh(model: Any, geom: int) -> Mesh:
    """One geom where it stands in its body."""
    shape = _round(model, geom)
    if shape is None:
        fine = merge_geoms(model, [geom])
        return np.asarray(fine.vertices), np.asarray(fine.faces)
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom_quat[geom])
    return np.asarray(shape.vertices) @ turn.reshape(3, 3).T + model.geom_pos[geom], np.asarray(shape.faces)


def _round(model: Any, geom: int) -> trimesh.Trimesh | None:
    """A capsule, sphere, ellipsoid or cylinder around its own middle, or None for anything else."""
    kinds, kind, size = mujoco.mjtGeom, int(model.geom_type[geom]), model.geom_size[geom]
    if kind == int(kinds.mjGEOM_CAPSULE):
        mesh = trimesh.creation.capsule(radius=size[0], height=2 * size[1], count=ROUND)
        mesh.apply_translation(-mesh.bounds.mean(0))
        return mesh
    if kind == int(kinds.mjGEOM_CYLINDER):
        return trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=ROUND[1])
    if kind in (int(kinds.mjGEOM_SPHERE), int(kinds.mjGEOM_ELLIPSOID)):
        mesh = trimesh.creation.icosphere(subdivisions=2)
        mesh.apply_scale(size[0] if kind == int(kinds.mjGEOM_SPHERE) else size)
        return mesh
    return None
