"""MuJoCo models of a body in a maze: one with all walls, and one with places for the few walls nearby."""

import mujoco
import numpy as np
from numpy.typing import NDArray

from zol.worlds.dmc.domain import Array, Model
from zol.worlds.dmc.strip import without_midphase
from zol.worlds.ogbench.maze_map import UNIT, WALL_HEIGHT, MazeMap, centre
from zol.worlds.ogbench.package import model_file

SLOTS = 3  # walls that a body can touch from one quadrant of a free cell: beside it, below it, and the corner
PARKED = np.array([1e4, 1e4, WALL_HEIGHT / 2])  # where a wall is that is not wanted
# Guards are planes that face inwards, along these axes. Their normals are too short for MuJoCo to make a
# contact frame of (it wants half a unit at least), so that touching one is an error and never a force.
INWARDS = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
SHORT = 0.4


def build_model(body: str, maze: MazeMap | None) -> Model:
    """The package's body with one box per wall cell, and a camera that looks down on all of it."""
    spec = _read(body)
    if maze is None:
        rows = columns = 7
    else:
        rows, columns = maze.walls.shape
        for cell in wall_cells(maze):
            _add_wall(spec, "block_{}_{}".format(*cell), wall_place(cell))
        floor = spec.geom("floor")
        floor.pos, floor.size = [*_middle(rows, columns), 0.0], [2 * columns, 2 * rows, 0.2]
    spec.worldbody.add_camera(
        name="above", pos=[*_middle(rows, columns), 5.0 * (columns - 2)], fovy=45, xyaxes=[1, 0, 0, 0, 1, 0]
    )
    return without_midphase(spec.compile())


def near_model(body: str, full: Model) -> Model:
    """The body with the floor of the model ``full``, ``SLOTS`` walls that are parked, and four guards.

    Which geoms may touch is listed pair by pair, in the order in which MuJoCo meets them in the full model.
    It then has no bodies to look for, and does not sweep the limbs of the ant for collisions among each
    other, which its bitmasks rule out anyway.
    """
    spec = _read(body)
    limbs = [str(geom.name) for geom in spec.geoms if geom.name != "floor"]
    floor = spec.geom("floor")
    floor.pos, floor.size = full.geom("floor").pos, full.geom("floor").size
    for part in (*spec.lights, *spec.cameras):  # MuJoCo moves them with the body, at every substep
        spec.delete(part)
    walls, guards = [f"wall_{k}" for k in range(SLOTS)], [f"guard_{k}" for k in range(len(INWARDS))]
    for name in walls:
        _add_wall(spec, name, PARKED)
    for name, normal in zip(guards, INWARDS, strict=True):
        turn = np.zeros(4)
        mujoco.mju_quatZ2Vec(turn, normal)
        spec.worldbody.add_geom(
            name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1], pos=-1e4 * normal, quat=turn
        )
    for limb in limbs:
        for name in ("floor", *walls):
            spec.add_pair(geomname1=name, geomname2=limb)
    for name in guards:
        spec.add_pair(geomname1=name, geomname2=limbs[0])
    model = without_midphase(spec.compile())
    _mix(model)
    for name in guards:
        model.pair_margin[model.pair_geom1 == model.geom(name).id] = 0.0
    for field in (model.geom_contype, model.geom_conaffinity, model.body_contype, model.body_conaffinity):
        field[:] = 0
    for name in guards:
        model.geom(name).quat *= np.sqrt(SHORT)  # a rotation grows with the square of its quaternion
    return model


def wall_cells(maze: MazeMap) -> NDArray[np.int64]:
    """The cells that are walls ``[W, 2]``, in the order of the model's geoms."""
    return np.argwhere(maze.walls)


def wall_place(cell: NDArray[np.int64]) -> Array:
    """Centre of the boxes of cells ``[..., 2]``, in metres."""
    place = centre(cell)
    return np.concatenate([place, np.full((*place.shape[:-1], 1), WALL_HEIGHT / 2)], -1)


def _read(body: str) -> "mujoco.MjSpec":
    return mujoco.MjSpec.from_file(str(model_file(f"locomaze/assets/{body}.xml")))


def _add_wall(spec: "mujoco.MjSpec", name: str, place: Array) -> None:
    spec.worldbody.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=place,
        size=[UNIT / 2, UNIT / 2, WALL_HEIGHT / 2],
        contype=1,
        conaffinity=1,
        material="wall",
    )


def _mix(model: Model) -> None:
    """Give every pair what a contact of its two geoms has, which have the same priority and weight."""
    one, other = model.pair_geom1, model.pair_geom2
    model.pair_dim[:] = np.maximum(model.geom_condim[one], model.geom_condim[other])
    friction = np.maximum(model.geom_friction[one], model.geom_friction[other])
    model.pair_friction[:] = friction[:, [0, 0, 1, 2, 2]]
    for field in ("solref", "solimp"):
        of_geoms = getattr(model, f"geom_{field}")
        getattr(model, f"pair_{field}")[:] = 0.5 * of_geoms[one] + 0.5 * of_geoms[other]
    model.pair_margin[:] = model.geom_margin[one] + model.geom_margin[other]
    model.pair_gap[:] = model.geom_gap[one] + model.geom_gap[other]


def _middle(rows: int, columns: int) -> tuple[float, float]:
    return UNIT / 2 * (columns - 3), UNIT / 2 * (rows - 3)
