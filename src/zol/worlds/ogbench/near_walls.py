"""Step bodies in a maze among the few walls that they can touch: the same motion to the last bit, faster.

MuJoCo tests every limb against every wall, twenty times per action of the ant: two fifths of its time. Here
every environment is stepped on a model with three walls, those around the quadrant of the cell that its torso
is in. Guards make that exact. They stand around the quadrant, as far out as the torso can go before a limb
could reach another wall, and stop an environment whose torso goes there, be it in the middle of a Runge-Kutta
step. It is then stepped again from where it was, on the model with all walls; so is one that starts where
three walls are not enough, inside a wall or outside of the maze.
"""

import copy

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import NDArray

from zol.common.errors import WorldError
from zol.worlds.dmc.domain import Array, Batch, Model
from zol.worlds.dmc.strip import strip_unused
from zol.worlds.ogbench.maze_map import UNIT, MazeMap
from zol.worlds.ogbench.maze_model import INWARDS, PARKED, SHORT, SLOTS, near_model, wall_cells, wall_place

QUADRANT = UNIT / 2
CORNER = -1.5 * UNIT  # x and y where cell (0, 0) begins
TOLERANCE = 1e-3  # metres, against rounding


class NearWalls:
    """Steps the environments of a batch, whose model has all walls."""

    def __init__(self, body: str, maze: MazeMap, full: Model) -> None:
        self.model = strip_unused(near_model(body, full), ())
        self.reach = reach(self.model)
        self.slack = UNIT / 2 - self.reach - TOLERANCE  # walls across the cell stay out of reach
        self.places, self.known = self._table(maze)
        self._batch: Batch | None = None
        self._geom_pos: Array  # of every environment of that batch
        self._warned: NDArray[np.int64]  # its counts of warnings
        self._trusted = self._guards_stop()

    def step(self, batch: Batch, substeps: int) -> None:
        """Advance all environments of ``batch`` by some physics steps."""
        if not self._trusted:
            batch.step(nstep=substeps, stage=mujoco.mjtStage.mjSTAGE_NONE)
            return
        near = self._batch_like(batch)
        quadrant, left = self.quadrants(batch.qpos[:, :2])
        near.state[:] = batch.state
        self._geom_pos[:] = self.places[quadrant]
        if not left.all():
            try:
                near.step(np.flatnonzero(~left), nstep=substeps, stage=mujoco.mjtStage.mjSTAGE_NONE)
            except mujoco.batch.SimulationError as stopped:
                left[stopped.ids] = True
            warned = near.warning[:, :, 1].copy()
            left |= (warned != self._warned).any(1)  # what warns here is to warn there
            self._warned = warned
        if left.any():
            batch.state[~left] = near.state[~left]
            batch.step(np.flatnonzero(left), nstep=substeps, stage=mujoco.mjtStage.mjSTAGE_NONE)
        else:
            batch.state[:] = near.state

    def quadrants(self, place: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Quadrants ``[n]`` that places ``[n, 2]`` lie in, and where three walls are not enough ``[n]``."""
        rows, columns = self.known.shape
        at = np.floor((place - CORNER) / QUADRANT)
        inside: NDArray[np.bool_] = np.all((at >= 0) & (at < (columns, rows)), axis=1)  # False for NaN
        column, row = np.where(inside[:, None], at, 0).astype(np.int64).T
        return row * columns + column, ~inside | ~self.known[row, column]

    def _table(self, maze: MazeMap) -> tuple[Array, NDArray[np.bool_]]:
        """``geom_pos`` for every quadrant, and which quadrants ``[2 rows, 2 columns]`` have few walls."""
        model, walls = self.model, wall_place(wall_cells(maze))
        slots = [int(model.geom(f"wall_{k}").id) for k in range(SLOTS)]
        guards = [int(model.geom(f"guard_{k}").id) for k in range(len(INWARDS))]
        # A sphere of radius r touches a plane when its centre is r above it, measured with the short normal.
        behind = self.slack + float(model.geom_size[_torso(model), 0]) / SHORT
        known = np.zeros((2 * len(maze.walls), 2 * len(maze.walls.T)), dtype=np.bool_)
        places = np.tile(model.geom_pos, (known.size, 1, 1))
        for number, (row, column) in enumerate(np.ndindex(known.shape)):
            low = CORNER + QUADRANT * np.array([column, row])
            middle = low + QUADRANT / 2
            away = np.abs(walls[:, :2] - middle) - UNIT / 2 - QUADRANT / 2 - self.slack
            near = walls[np.linalg.norm(np.maximum(away, 0), axis=1) <= self.reach]
            known[row, column] = len(near) <= SLOTS
            if known[row, column]:
                places[number, slots] = PARKED
                places[number, slots[: len(near)]] = near
                out = -(QUADRANT / 2 + behind) * INWARDS
                places[number, guards] = out + np.array([*middle, 0.0])
        return places, known

    def _batch_like(self, batch: Batch) -> Batch:
        if self._batch is None or (self._batch.nsim, self._batch.nthread) != (batch.nsim, batch.nthread):
            self._batch = mujoco.batch.Batch(self.model, batch.nsim, batch.nthread)
            self._geom_pos = self._batch.expand("geom_pos")
            self._warned = self._batch.warning[:, :, 1].copy()
        return self._batch

    def _guards_stop(self) -> bool:
        """Whether this MuJoCo refuses contacts with guards, and none but those."""
        limit = QUADRANT / 2 + self.slack
        model = copy.copy(self.model)
        first = int(np.argmax(self.known))
        model.geom_pos[:] = self.places[first]
        row, column = divmod(first, self.known.shape[1])
        middle = CORNER + QUADRANT * (np.array([column, row]) + 0.5)
        off = np.concatenate([(limit + sign * TOLERANCE / 2) * INWARDS[:, :2] for sign in (-1, 1)])
        batch = mujoco.batch.Batch(model, len(off), 1)
        batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        batch.qpos[:, :2] = middle + off
        try:
            batch.forward()
        except mujoco.batch.SimulationError as stopped:
            return list(stopped.ids) == [4, 5, 6, 7]
        return False


def reach(model: Model) -> float:
    """Metres from the torso's centre, seen from above, to where a limb touches a wall, however it is bent."""
    torso = _torso(model)
    farthest = 0.0
    for geom in np.flatnonzero(model.geom_bodyid > 0):
        length = float(np.linalg.norm(model.geom_pos[geom])) if geom != torso else 0.0
        body = int(model.geom_bodyid[geom])
        while body != model.geom_bodyid[torso]:
            length += float(np.linalg.norm(model.body_pos[body]))
            body = int(model.body_parentid[body])
        farthest = max(farthest, length + float(model.geom_rbound[geom]))
    return farthest + float((model.pair_margin + model.pair_gap).max())


def _torso(model: Model) -> int:
    """The first geom of the body: a sphere, and its centre is above the place that the body is at."""
    torso = int(np.argmax(model.geom_bodyid > 0))
    if model.geom_type[torso] != mujoco.mjtGeom.mjGEOM_SPHERE or model.geom_pos[torso, :2].any():
        raise WorldError(
            "the first geom of a body in OGBench's mazes should be a sphere around the body's place, and "
            "is not: install the version that zol was tested with, pip install 'ogbench==1.2.2'"
        )
    return torso
