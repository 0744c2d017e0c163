"""Meshes of a MuJoCo model's geoms, as coarse as a page can afford.

mjviser makes a capsule of 4,096 triangles; a walker of seven would be drawn with 29,000, most of them smaller
than a pixel, and a browser without a graphics card needs its time for the person who turns a slider. Round
shapes are made here with a few hundred; everything else is mjviser's.
"""

from collections.abc import Sequence
from typing import Any

import mujoco
import trimesh
from mjviser.conversions import merge_geoms

ROUND = (8, 20)  # sections of a capsule along and around


def merged(model: Any, geoms: Sequence[int]) -> trimesh.Trimesh:
    """One mesh of these geoms, in the frame of their body."""
    meshes = []
    for geom in geoms:
        mesh = _round(model, geom)
        meshes.append(merge_geoms(model, [geom]) if mesh is None else mesh)
    return trimesh.util.concatenate([trimesh.Trimesh(mesh.vertices, mesh.faces) for mesh in meshes])


def _round(model: Any, geom: int) -> trimesh.Trimesh | None:
    """A capsule, sphere, ellipsoid or cylinder where the geom is, or None for anything else."""
    kinds, kind, size = mujoco.mjtGeom, int(model.geom_type[geom]), model.geom_size[geom]
    if kind == int(kinds.mjGEOM_CAPSULE):
        mesh = trimesh.creation.capsule(radius=size[0], height=2 * size[1], count=ROUND)
        mesh.apply_translation(-mesh.bounds.mean(0))
    elif kind == int(kinds.mjGEOM_CYLINDER):
        mesh = trimesh.creation.cylinder(radius=size[0], height=2 * size[1], sections=ROUND[1])
    elif kind in (int(kinds.mjGEOM_SPHERE), int(kinds.mjGEOM_ELLIPSOID)):
        mesh = trimesh.creation.icosphere(subdivisions=2)
        mesh.apply_scale(size[0] if kind == int(kinds.mjGEOM_SPHERE) else size)
    else:
        return None
    where = trimesh.transformations.quaternion_matrix(model.geom_quat[geom])
    where[:3, 3] = model.geom_pos[geom]
    mesh.apply_transform(where)
    return mesh
