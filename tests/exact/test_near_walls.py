"""Ants among the walls that are near against ants among all walls: equal to the last bit, wherever."""

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.worlds import make
from zol.worlds.ogbench.maze import MazeWorld
from zol.worlds.ogbench.maze_map import UNIT, centre
from zol.worlds.ogbench.maze_model import SLOTS, wall_cells, wall_place
from zol.worlds.ogbench.near_walls import NearWalls, reach

NAMES = ("antmaze-medium", "antmaze-large")
STEPS = 200


def _worlds(name: str) -> tuple[MazeWorld, MazeWorld, NearWalls]:
    """A world that steps among near walls, and one that steps among all."""
    fast, slow = make(name), make(name)
    assert isinstance(fast, MazeWorld)
    assert isinstance(slow, MazeWorld)
    near = fast.near_walls
    assert near is not None
    slow.near_walls = None
    return fast, slow, near


def _ants(world: MazeWorld) -> Tensor:
    """Ants in starts, beside walls, in corners, anywhere at all, and some that are thrown."""
    generator = torch.Generator().manual_seed(0)
    physics = world.reset(48, generator).physics
    assert physics is not None
    assert world.maze is not None
    rows, columns = world.maze.walls.shape
    free = torch.from_numpy(centre(world.maze.free))
    chosen = free[torch.randint(len(free), (16,), generator=generator)]
    side = torch.randint(4, (8,), generator=generator)
    beside = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)[side]
    physics[:8, :2] = chosen[:8] + 1.5 * beside
    physics[8:16, :2] = chosen[8:] + 1.5 * (2.0 * (side.unsqueeze(-1) >> torch.arange(2) & 1) - 1)
    anywhere = torch.rand(16, 2, generator=generator, dtype=torch.float64)
    physics[16:32, :2] = anywhere * UNIT * torch.tensor([columns, rows]) - 1.5 * UNIT
    physics[32, :2] = torch.from_numpy(wall_place(wall_cells(world.maze))[10, :2])  # inside a wall
    physics[33, :2] = torch.tensor([-9.0, -9.0])  # outside
    physics[34, :2] = torch.tensor([4000.0, 3.0])
    directions = torch.linspace(0, 2 * np.pi, 8)
    physics[35:39, 15] = 30.0
    physics[39:43, 15:17] = -30.0
    speed = torch.linspace(4, 20, 8)
    physics[40:, 15] = speed * directions.cos()
    physics[40:, 16] = speed * directions.sin()
    return physics


def _actions(world: MazeWorld, envs: int) -> Tensor:
    """Half random, half saturated and held for ten steps, which presses ants against walls."""
    generator = torch.Generator().manual_seed(1)
    drawn = 2 * torch.rand(STEPS, envs, world.action_dim, generator=generator, dtype=torch.float64) - 1
    drawn[:, ::2] = 2.0 * drawn[torch.arange(STEPS) // 10 * 10, ::2].sign()
    return drawn


@pytest.mark.parametrize("name", NAMES)
def test_motion_is_that_among_all_walls(name: str) -> None:
    fast, slow, near = _worlds(name)
    physics = _ants(fast)
    seen, wanted = fast.set_physics(physics), slow.set_physics(physics)
    alone, pressed = 0.0, 0
    for step, action in enumerate(_actions(fast, len(physics))):
        assert seen.physics is not None
        outside = near.quadrants(seen.physics[:, :2].numpy())[1]
        alone += float(outside.mean()) / STEPS
        pressed += _touching_walls(slow, seen.physics[::12]) if step % 20 == 0 else 0
        seen, wanted = fast.step(action), slow.step(action)
        assert torch.equal(seen.obs, wanted.obs)
        assert seen.physics is not None
        assert wanted.physics is not None
        assert torch.equal(seen.physics, wanted.physics)
        # Time, warm start and whatever else the next step begins with.
        assert np.array_equal(fast._running().state, slow._running().state)
    assert alone < 0.5  # or all walls were compared with all walls
    assert pressed > 0  # or no wall was touched


@pytest.mark.parametrize("name", NAMES)
def test_falling_back_at_any_time_changes_nothing(name: str) -> None:
    """Environments change between the two models at random, long after they were put into a state."""
    fast, slow, near = _worlds(name)
    near.known &= np.random.default_rng(0).random(near.known.shape) < 0.5
    physics = _ants(fast)
    fast.set_physics(physics)
    slow.set_physics(physics)
    for action in _actions(fast, len(physics))[:60]:
        assert torch.equal(fast.step(action).obs, slow.step(action).obs)
        assert np.array_equal(fast._running().state, slow._running().state)


def test_a_guard_stops_those_who_cross_it_and_nobody_else() -> None:
    fast, _, near = _worlds("antmaze-medium")
    physics = fast.reset(4, torch.Generator().manual_seed(0)).physics
    assert physics is not None
    physics[:, :2] = 1.0  # the middle of a quadrant of cell (1, 1), 1 m from its sides
    physics[:, 15:] = 0.0
    physics[1:, 15] = torch.tensor([-8.0, -30.0, 30.0])
    fast.set_physics(physics)
    batch = fast._running()
    again: list[int] = []
    among_all = batch.step

    def step(ids: NDArray[np.int64], **how: int) -> None:
        again.extend(ids)
        among_all(ids, **how)

    batch.step = step
    near.step(batch, 5)
    assert again == [2, 3]


@pytest.mark.parametrize("name", [*NAMES, "pointmaze-medium", "pointmaze-large"])
def test_no_other_wall_is_within_reach_of_a_limb(name: str) -> None:
    """For random places and reachable limbs; what limbs reach is measured in a simulated body, too."""
    fast, _, near = _worlds(name)
    assert fast.maze is not None
    assert near._trusted
    rng = np.random.default_rng(0)
    rows, columns = fast.maze.walls.shape
    place = rng.uniform(-1.5 * UNIT, np.array([columns - 1.5, rows - 1.5]) * UNIT, (20_000, 2))
    quadrant, left = near.quadrants(place)
    assert left.mean() < 0.1
    assert not near.quadrants(centre(fast.maze.free) + rng.uniform(-2, 2, (len(fast.maze.free), 2)))[1].any()
    # Wherever it goes without crossing a guard: within the slack, along both axes.
    torso = place + rng.uniform(-near.slack, near.slack, place.shape)
    angle = rng.uniform(0, 2 * np.pi, len(place))
    limb = torso + near.reach * np.stack([np.cos(angle), np.sin(angle)], 1)
    walls = wall_place(wall_cells(fast.maze))[:, :2]
    touched: NDArray[np.bool_] = np.all(np.abs(limb[:, None] - walls) <= UNIT / 2, axis=-1)
    slots = [int(near.model.geom(f"wall_{k}").id) for k in range(SLOTS)]
    there = near.places[quadrant][:, slots, :2]
    chosen = np.any(np.all(np.abs(there[:, :, None] - walls) < 1e-9, axis=-1), axis=1)
    assert touched[~left].any()
    assert not (touched & ~chosen)[~left].any()
    # A guard is met at the end of the slack, which is where the table ends.
    assert near.slack + near.reach < UNIT / 2
    assert _farthest_limb(near, rng) <= reach(near.model)


@pytest.mark.parametrize("name", [*NAMES, "pointmaze-medium"])
def test_models_agree_in_everything_but_walls(name: str) -> None:
    fast, _, near = _worlds(name)
    small, full = near.model, fast._model
    tied = ("geom", "bvh", "contype", "conaffinity", "id", "signature", "lightadr", "camadr")
    compared = 0
    for field in dir(full):
        if field.startswith(("body_", "dof_", "jnt_", "actuator_", "qpos")) and not any(
            word in field for word in tied
        ):
            assert np.array_equal(getattr(small, field), getattr(full, field)), field
            compared += 1
    assert compared > 50
    assert small.stat.meaninertia == full.stat.meaninertia
    for field in ("timestep", "integrator", "solver", "iterations", "tolerance", "cone", "disableflags"):
        assert getattr(small.opt, field) == getattr(full.opt, field)


def _touching_walls(world: MazeWorld, physics: Tensor) -> int:
    """Contacts with walls in these states."""
    model = world.domain.model
    data, count = mujoco.MjData(model), 0
    for row in physics.numpy():
        data.qpos[:], data.qvel[:] = row[: model.nq], row[model.nq :]
        mujoco.mj_forward(model, data)
        count += int((model.geom_type[data.contact.geom] == mujoco.mjtGeom.mjGEOM_BOX).sum())
    return count


def _farthest_limb(near: NearWalls, rng: np.random.Generator) -> float:
    """Metres from the torso's centre to the end of a limb, seen from above, over random poses."""
    model, farthest = near.model, 0.0
    data = mujoco.MjData(model)
    moving = model.geom_bodyid > 0
    for _ in range(200):
        data.qpos[:] = rng.normal(size=model.nq)
        mujoco.mj_kinematics(model, data)
        along = data.geom_xmat[moving].reshape(-1, 3, 3)[:, :2, 2] * model.geom_size[moving, 1:2]
        centres = data.geom_xpos[moving, :2]
        ends = np.concatenate([centres - along, centres + along]) - centres[0]
        radius = np.tile(model.geom_size[moving, 0], 2)
        farthest = max(farthest, float((np.linalg.norm(ends, axis=1) + radius).max()))
    return farthest
