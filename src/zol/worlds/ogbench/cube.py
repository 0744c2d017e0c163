"""Cubes on the table: one or two are to be moved to places that a task names.

28 observations with one cube, 37 with two: the arm's 19, then per cube its place, orientation and yaw. A cube
is in its place within 4 cm; the reward counts cubes that are not (minus one each).
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, uniform
from zol.worlds.ogbench import rotations
from zol.worlds.ogbench.arm import (
    ARM_FIELDS,
    ARM_SIZE,
    CENTRE,
    OBJECTS,
    SCALE,
    SUBSTEPS,
    ArmWorld,
    compiled,
    table,
)
from zol.worlds.ogbench.package import model_file
from zol.worlds.ogbench.rewards import goal_tasks

IN_PLACE = 0.04  # metres
ON_TABLE = 0.02  # height of a cube's centre
JITTER = 0.01  # metres, of where cubes are when an episode begins
CUBE_SIZE = 9  # columns of an observation per cube
FREE_AREA = np.array([[0.3, -0.3], [0.55, 0.3]])  # where data collection puts cubes and wants them
CAMERA = ((1.287, 0.0, 0.509), (0.0, 1.0, 0.0, -0.342, 0.0, 0.940))
Places = tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Move:
    """Where a task's cubes are at first, and where they should be."""

    words: str
    begin: Places
    goal: Places


def _on(*places: tuple[float, float]) -> Places:
    return tuple((x, y, ON_TABLE) for x, y in places)


SINGLE = (
    Move("to the other side", _on((0.425, 0.1)), _on((0.425, -0.1))),
    Move("away from the arm", _on((0.35, 0.0)), _on((0.5, 0.0))),
    Move("towards the arm", _on((0.5, 0.0)), _on((0.35, 0.0))),
    Move("across the table", _on((0.35, -0.2)), _on((0.5, 0.2))),
    Move("across the table, the other way", _on((0.35, 0.2)), _on((0.5, -0.2))),
)
DOUBLE = (
    Move("one of two cubes", _on((0.425, 0.0), (0.425, -0.1)), _on((0.425, 0.0), (0.425, 0.1))),
    Move("both to the other side", _on((0.35, -0.1), (0.5, -0.1)), _on((0.35, 0.1), (0.5, 0.1))),
    Move("both, apart", _on((0.35, 0.0), (0.5, 0.0)), _on((0.425, -0.2), (0.425, 0.2))),
    Move("swap them", _on((0.425, -0.1), (0.425, 0.1)), _on((0.425, 0.1), (0.425, -0.1))),
    Move("stack them", _on((0.425, -0.2), (0.425, 0.2)), ((0.425, 0.0, 0.02), (0.425, 0.0, 0.06))),
)


class CubeWorld(ArmWorld):
    """A table with one or two cubes."""

    def __init__(self, name: str, moves: tuple[Move, ...], episode_length: int) -> None:
        self.cubes = len(moves[0].begin)
        self.episode_length = episode_length
        spec = build_spec(self.cubes)
        model = compiled(spec)
        domain = Domain(
            name=name,
            model=model,
            substeps=SUBSTEPS,
            layout=layout(self.cubes),
            tasks={},
            discount=0.99,
            starts=self._any_start,
            observe=self._observe,
            reads=("site_xpos", "site_xmat", "cfrc_ext"),
            stage=mujoco.mjtStage.mjSTAGE_POS,
            camera=int(model.camera("front").id),
        )
        super().__init__(domain, spec)
        self._moves = moves
        made = [
            task for number, move in enumerate(moves, start=1) for task in self._tasks(f"task{number}", move)
        ]
        self.tasks = {task.name: task for task in made}

    def starts_at(self, places: Array, yaw: Array, generator: torch.Generator) -> Array:
        """Simulator states with cubes at places ``[n, cubes, 3]``, turned by yaws ``[n, cubes]``, at rest."""
        n = len(places)
        qpos = self.arm_starts(n, generator)
        poses = np.concatenate([places, rotations.about_z(yaw)], axis=-1)
        qpos[:, OBJECTS:] = poses.reshape(n, -1)
        return np.concatenate([qpos, np.zeros((n, self.domain.model.nv))], axis=1)

    def scattered(self, n: int, generator: torch.Generator) -> Array:
        """Simulator states with cubes anywhere in the area that data collection uses."""
        places = np.full((n, self.cubes, 3), ON_TABLE)
        places[..., :2] = uniform(FREE_AREA[0], FREE_AREA[1], (n, self.cubes, 2), generator)
        return self.starts_at(places, _yaws(n, self.cubes, generator), generator)

    def _begin(self, places: Array, generator: torch.Generator) -> Array:
        off = np.full(2, JITTER)
        places = places.copy()
        places[..., :2] += uniform(-off, off, (*places.shape[:2], 2), generator)
        return self.starts_at(places, _yaws(len(places), self.cubes, generator), generator)

    def _any_start(self, of: Model, n: int, generator: torch.Generator) -> Array:
        chosen = torch.randint(len(self._moves), (n,), generator=generator).numpy()
        return self._begin(np.array([move.begin for move in self._moves])[chosen], generator)

    def _observe(self, batch: Batch) -> Array:
        parts = self.observe_arm(batch)
        for k in range(self.cubes):
            pose = batch.qpos[:, OBJECTS + 7 * k : OBJECTS + 7 * (k + 1)]
            yaw = rotations.yaw(pose[:, 3:])
            parts += [(pose[:, :3] - CENTRE) * SCALE, pose[:, 3:], np.cos(yaw)[:, None], np.sin(yaw)[:, None]]
        return np.concatenate(parts, axis=1)

    def _tasks(self, name: str, move: Move) -> tuple[Task, Task]:
        begin, goal = np.array(move.begin), np.array(move.goal)
        target = torch.from_numpy(goal)

        def in_place(states: States) -> Tensor:
            seen = torch.stack([places(states, k) for k in range(self.cubes)], dim=-2)
            return torch.linalg.vector_norm(seen - target.to(seen.device), dim=-1) <= IN_PLACE

        def starts(n: int, generator: torch.Generator) -> Tensor:
            return torch.from_numpy(self._begin(np.tile(begin, (n, 1, 1)), generator))

        return goal_tasks(
            name, move.words, in_place, starts, self._shown(goal), place=tuple(map(float, goal[-1]))
        )

    def _shown(self, goal: Array) -> Tensor:
        """What the goal looks like: cubes in their places, the gripper waiting above the middle."""
        physics = np.zeros((1, self.domain.physics_dim))
        qpos = physics[:, : self.domain.model.nq]
        qpos[:] = self.domain.model.qpos0
        qpos[:, :6] = self.reach(self.arm_bounds.mean(0, keepdims=True), np.zeros(1))
        qpos[0, OBJECTS:] = np.concatenate([goal, np.tile([1.0, 0, 0, 0], (len(goal), 1))], axis=1).reshape(
            -1
        )
        return self.observe(torch.from_numpy(physics))[0]


def cube_single() -> CubeWorld:
    """One cube; episodes of 200 steps."""
    return CubeWorld("cube-single", SINGLE, 200)


def cube_double() -> CubeWorld:
    """Two cubes; episodes of 500 steps."""
    return CubeWorld("cube-double", DOUBLE, 500)


def places(states: States, k: int) -> Tensor:
    """Where cube ``k`` is, in metres, ``[..., 3]``."""
    return states[f"cube_{k}"].double() / SCALE + torch.from_numpy(CENTRE).to(states.obs.device)


def layout(cubes: int) -> Layout:
    """The columns of an observation with so many cubes."""
    fields = list(ARM_FIELDS)
    for k in range(cubes):
        begin = ARM_SIZE + CUBE_SIZE * k
        fields += [
            Field(f"cube_{k}", begin, 3, "dm", "place of its centre, off (0.425, 0, 0) m"),
            Field(f"cube_{k}_orientation", begin + 3, 4, "", "a quaternion (w, x, y, z)"),
            Field(f"cube_{k}_yaw", begin + 7, 2, "", "cosine and sine of its turn about the vertical"),
        ]
    return Layout(ARM_SIZE + CUBE_SIZE * cubes, tuple(fields))


def build_spec(cubes: int) -> "mujoco.MjSpec":
    """The table with cubes on it."""
    spec = table(CAMERA)
    for k in range(cubes):
        cube = mujoco.MjSpec.from_file(str(model_file("manipspace/descriptions/cube.xml")))
        cube.delete(cube.body("object_target_0"))  # shows a goal; films mark it instead
        cube.body("object_0").pos[1] = -0.05 * (cubes - 1) + 0.1 * k
        cube.geom("object_0").rgba = COLOURS[k]
        spec.attach(cube, frame=spec.worldbody.add_frame(), prefix=f"cube_{k}/")
    return spec


COLOURS = ((0.96, 0.26, 0.33, 1.0), (0.35, 0.55, 0.91, 1.0))


def _yaws(n: int, cubes: int, generator: torch.Generator) -> Array:
    return uniform(np.array(0.0), np.array(2 * np.pi), (n, cubes), generator)
