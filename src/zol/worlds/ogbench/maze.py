"""A point or an ant in a maze: five tasks, each from the neighbourhood of one cell to the centre of another.

ant     29 observations (qpos and qvel, so the first two are its place), 8 motors, 10 actions per second, each
        five Runge-Kutta steps of 20 ms; a task is solved within 0.5 m of the goal; a fall ends nothing
point   2 observations (its place); an action moves the ball by up to 0.2 m per axis and stops it, then five
        physics steps push it out of walls; solved within 1 m
"""

from collections.abc import Callable

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, uniform
from zol.worlds.dmc.world import ControlWorld
from zol.worlds.ogbench.maze_map import MAZES, Cell, MazeMap, centre
from zol.worlds.ogbench.maze_model import build_model
from zol.worlds.ogbench.near_walls import NearWalls
from zol.worlds.ogbench.rewards import goal_tasks

SUBSTEPS = 5
EPISODE = 1000
REACH = {"ant": 0.5, "point": 1.0}  # metres within which a goal counts as reached
POINT_STEP = 0.2  # metres per unit of action
START_SPREAD = 1.0  # metres off the centre of the start cell, in x and in y
NOISE = 0.1  # of the joints at a start
# The ant standing on bent legs, which a goal shows: place, orientation, then hip and ankle of four legs.
STANDING = (0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)

POINT = Layout(2, (Field("place", 0, 2, "m", "x and y in the maze; cell (1, 1) is the origin"),))
ANT = Layout(
    29,
    (
        Field("place", 0, 2, "m", "x and y in the maze; cell (1, 1) is the origin"),
        Field("height", 2, 1, "m", "of the torso"),
        Field("orientation", 3, 4, "", "of the torso, a quaternion (w, x, y, z)"),
        Field("joints", 7, 8, "rad", "hip and ankle of the front left, front right, back and right back leg"),
        Field("velocity", 15, 3, "m/s", "of the torso, in the world's frame"),
        Field("spin", 18, 3, "rad/s", "angular velocity of the torso, in its own frame"),
        Field("joint_velocities", 21, 8, "rad/s", "in the order of the joints"),
    ),
)


class MazeWorld(ControlWorld):
    """A maze with a body in it, as many at once as asked for."""

    episode_length = EPISODE

    def __init__(self, domain: Domain, body: str, maze: MazeMap | None) -> None:
        super().__init__(domain)
        self.body, self.maze = body, maze
        self.near_walls = NearWalls(body, maze, domain.model) if maze is not None else None

    def _advance(self, batch: Batch, action: Array) -> None:
        if self.body == "point":
            batch.qpos[:] = batch.qpos + POINT_STEP * action
            batch.qvel[:] = 0.0
        else:
            self._ctrl[:] = action
        if self.near_walls is None:
            batch.step(nstep=SUBSTEPS, stage=mujoco.mjtStage.mjSTAGE_NONE)
        else:
            self.near_walls.step(batch, SUBSTEPS)

    def starts_in(self, cells: NDArray[np.int64], generator: torch.Generator) -> Tensor:
        """Simulator states ``[n, P]`` in these cells ``[n, 2]``, with the noise of every start."""
        return torch.from_numpy(start_states(self.domain.model, cells, generator))


def pointmaze_medium() -> MazeWorld:
    """The point in the medium maze."""
    return world("point", "medium")


def pointmaze_large() -> MazeWorld:
    """The point in the large maze."""
    return world("point", "large")


def antmaze_medium() -> MazeWorld:
    """The ant in the medium maze."""
    return world("ant", "medium")


def antmaze_large() -> MazeWorld:
    """The ant in the large maze."""
    return world("ant", "large")


def world(body: str, maze_name: str) -> MazeWorld:
    """A body in one of the mazes, with five tasks; episodes without one begin as those of any of them."""
    maze = MAZES[maze_name]
    model = build_model(body, maze)
    tasks = {}
    for number, (start, goal) in enumerate(maze.tasks, start=1):
        for task in _tasks(body, model, f"task{number}", start, goal):
            tasks[task.name] = task
    begin = np.array([start for start, _ in maze.tasks])

    def starts(of: Model, n: int, generator: torch.Generator) -> Array:
        chosen = torch.randint(len(begin), (n,), generator=generator).numpy()
        return start_states(of, begin[chosen], generator)

    return MazeWorld(_domain(f"{body}maze-{maze_name}", body, model, tasks, starts), body, maze)


def open_ground() -> MazeWorld:
    """The ant on a plane without walls and without tasks, where an expert learns to walk."""

    def starts(of: Model, n: int, generator: torch.Generator) -> Array:
        return start_states(of, np.ones((n, 2), dtype=np.int64), generator)

    return MazeWorld(_domain("ant", "ant", build_model("ant", None), {}, starts), "ant", None)


def start_states(model: Model, cells: NDArray[np.int64], generator: torch.Generator) -> Array:
    """Simulator states ``[n, P]`` in cells ``[n, 2]``: up to 1 m off the centre per axis, joints noisy."""
    n, ones = len(cells), np.ones(model.nq)
    qpos = model.qpos0 + uniform(-NOISE * ones, NOISE * ones, (n, model.nq), generator)
    spread = np.full(2, START_SPREAD)
    qpos[:, :2] = centre(cells) + uniform(-spread, spread, (n, 2), generator)
    qvel = NOISE * torch.randn(n, model.nv, generator=generator, dtype=torch.float64).numpy()
    return np.concatenate([qpos, qvel], axis=1)


def _domain(
    name: str,
    body: str,
    model: Model,
    tasks: dict[str, Task],
    starts: Callable[[Model, int, torch.Generator], Array],
) -> Domain:
    return Domain(
        name=name,
        model=model,
        substeps=SUBSTEPS,
        layout=ANT if body == "ant" else POINT,
        tasks=tasks,
        discount=0.99,
        starts=starts,
        observe=_observe_ant if body == "ant" else _observe_point,
        reads=(),
        stage=mujoco.mjtStage.mjSTAGE_NONE,
        camera=int(model.camera("above").id),
    )


def _observe_ant(batch: Batch) -> Array:
    return np.concatenate([batch.qpos, batch.qvel], axis=1)


def _observe_point(batch: Batch) -> Array:
    return np.array(batch.qpos)


def _tasks(body: str, model: Model, name: str, start: Cell, goal: Cell) -> tuple[Task, Task]:
    place = centre(np.array(goal))
    target, radius = torch.from_numpy(place), REACH[body]

    def there(states: States) -> Tensor:
        away = torch.linalg.vector_norm(states["place"].double() - target.to(states.obs.device), dim=-1)
        return (away <= radius).unsqueeze(-1)

    def starts(n: int, generator: torch.Generator) -> Tensor:
        return torch.from_numpy(start_states(model, np.tile(np.array(start), (n, 1)), generator))

    shown = torch.zeros(ANT.obs_dim if body == "ant" else POINT.obs_dim, dtype=torch.float64)
    if body == "ant":
        shown[: len(STANDING)] = torch.tensor(STANDING, dtype=torch.float64)
    shown[:2] = target
    words = f"from cell {start} to within {radius:g} m of the centre of cell {goal}"
    return goal_tasks(name, words, there, starts, shown, place=(float(place[0]), float(place[1]), 0.0))
