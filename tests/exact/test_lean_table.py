"""Tables stepped on the leaner model against the full one: equal to the last bit, whatever is touched."""

import copy

import mujoco
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.worlds import make
from zol.worlds.dmc.domain import Array
from zol.worlds.ogbench.apart import Buttons, Fingers, NotStudied
from zol.worlds.ogbench.arm import GRIPPER, OBJECTS, ArmWorld
from zol.worlds.ogbench.cube import CubeWorld
from zol.worlds.ogbench.lean_table import OWN, LeanTable, lean_table

NAMES = ("cube-single", "cube-double", "puzzle-3x3")
ENVS, STEPS = 32, 60


def _worlds(name: str) -> tuple[ArmWorld, ArmWorld, LeanTable]:
    """A world that steps on the leaner model, and one that does not."""
    fast, slow = make(name), make(name)
    assert isinstance(fast, ArmWorld)
    assert isinstance(slow, ArmWorld)
    lean = fast.lean
    assert lean is not None
    slow.lean = None
    return fast, slow, lean


def _tables(world: ArmWorld) -> Tensor:
    """Tables as episodes begin, cubes in and above grippers, thrown things, bent fingers, pressed buttons."""
    generator = torch.Generator().manual_seed(0)
    world.reset(ENVS, generator)
    pinch = torch.from_numpy(world._running().site_xpos[:, world._pinch].copy())
    physics = world.physics
    nq, nv = world.domain.model.nq, world.domain.model.nv
    speed = physics[:, nq : nq + nv]
    speed[8:12] = torch.randn(4, nv, generator=generator, dtype=torch.float64)
    fingers = torch.rand(4, 8, generator=generator, dtype=torch.float64)
    physics[12:16, GRIPPER:OBJECTS] = fingers - 0.5  # what joints of a closed loop cannot be
    if isinstance(world, CubeWorld):
        for k in range(world.cubes):
            begin = OBJECTS + 7 * k
            physics[16:24, begin : begin + 3] = pinch[16:24]
            physics[16:24, begin + 2] += 0.1 * k
            physics[24:28, begin + 2] = 0.3  # falls
            speed[28:, GRIPPER + 8 + 6 * k] = 2.0  # slides to a wall
    else:
        physics[16:20, OBJECTS:nq] = -0.024
        physics[20:24, OBJECTS:nq] = 0.01
    return physics


def _actions(envs: int) -> Tensor:
    """A quarter random, a quarter held at the limits, and half of them going down, opening and closing."""
    generator = torch.Generator().manual_seed(1)
    drawn = 2 * torch.rand(STEPS, envs, 5, generator=generator, dtype=torch.float64) - 1
    drawn[:, 1::4] = drawn[torch.arange(STEPS) // 10 * 10, 1::4].sign()
    drawn[:, 2::4, 2] = -0.5
    drawn[:, 2::4, 4] = drawn[torch.arange(STEPS) // 10 * 10, 2::4, 4].sign()
    drawn[:, 3::4, 2] = torch.where(torch.arange(STEPS) < 12, -1.0, 0.3).unsqueeze(-1).double()
    drawn[:, 3::4, 4] = 1.0
    return drawn


@pytest.mark.parametrize("name", NAMES)
def test_motion_is_that_of_the_full_model(name: str) -> None:
    fast, slow, _ = _worlds(name)
    physics = _tables(fast)
    seen, wanted = fast.set_physics(physics), slow.set_physics(physics)
    assert torch.equal(seen.obs, wanted.obs)
    again: list[int] = []
    _count_full_steps(fast, again)
    touching: set[frozenset[str]] = set()
    for step, action in enumerate(_actions(ENVS)):
        seen, wanted = fast.step(action), slow.step(action)
        assert torch.equal(seen.obs, wanted.obs)
        assert seen.physics is not None
        assert wanted.physics is not None
        assert torch.equal(seen.physics, wanted.physics)
        # Time, warm start and whatever else the next step begins with.
        assert np.array_equal(fast._running().state, slow._running().state)
        if step % 5 == 0:
            touching |= _touching(slow, wanted.physics.numpy())
    assert 0 < len(again) < 0.5 * STEPS * ENVS  # or one model was compared with itself
    met = {one.split("/")[0] for pair in touching for one in pair if any("_pad" in part for part in pair)}
    assert met >= {"ur5e", "world", "buttons" if "puzzle" in name else "cube_0"}
    assert not touching & {frozenset(pair) for pair in Fingers.pairs}


@pytest.mark.parametrize("name", NAMES)
def test_changing_models_at_any_time_changes_nothing(name: str) -> None:
    fast, slow, lean = _worlds(name)
    rng = np.random.default_rng(0)
    proved = lean.apart

    def apart(qpos: Array) -> NDArray[np.bool_]:
        return proved(qpos) & (rng.random(len(qpos)) < 0.5)

    lean.apart = apart  # type: ignore[method-assign]
    physics = _tables(fast)
    fast.set_physics(physics)
    slow.set_physics(physics)
    for action in _actions(ENVS)[:20]:
        assert torch.equal(fast.step(action).obs, slow.step(action).obs)
        assert np.array_equal(fast._running().state, slow._running().state)


def test_links_that_are_said_to_be_apart_are_apart() -> None:
    """For all angles of both fingers, most of them close to where the proof ends."""
    world = make("cube-single")
    assert isinstance(world, ArmWorld)
    model = world.domain.model
    fingers, rng = Fingers(model), np.random.default_rng(0)
    low, high = np.array([-0.06, -0.8, -0.42, -1.0]), np.array([0.86, 0.1, 0.86, 1.2])
    qpos = np.tile(model.qpos0, (200_000, 1))
    for columns in fingers.columns:
        qpos[:, columns] = rng.uniform(low, high, (len(qpos), 4))
    qpos = qpos[fingers.apart(qpos)]
    assert len(qpos) > 1000
    # Most often, the way from one proved state to another ends well before: go to where the proof ends.
    other = rng.uniform(low[None], high[None], (2, len(qpos), 1, 4))
    for _ in range(12):
        towards = qpos.copy()
        for columns, aim in zip(fingers.columns, other[:, :, 0], strict=True):
            towards[:, columns] += 0.2 * (aim - towards[:, columns])
        qpos = np.where(fingers.apart(towards)[:, None], towards, qpos)
    data, ends = mujoco.MjData(model), np.zeros(6)
    solid = model.geom_contype > 0
    pairs = [
        (one, other)
        for names in fingers.pairs
        for one in np.flatnonzero(solid & (model.geom_bodyid == model.body(names[0]).id))
        for other in np.flatnonzero(solid & (model.geom_bodyid == model.body(names[1]).id))
    ]
    nearest = np.full(len(pairs), np.inf)
    for row in qpos[:800]:
        data.qpos[:] = row
        mujoco.mj_kinematics(model, data)
        distances = [mujoco.mj_geomDistance(model, data, *pair, 0.05, ends) for pair in pairs]
        nearest = np.minimum(nearest, distances)
    assert nearest.min() > 0
    assert nearest.min() < 0.002  # or the states were all far from where links touch
    assert not fingers.apart(np.full((1, model.nq), np.nan)).any()
    assert not fingers.apart(np.full((1, model.nq), 1e300)).any()


def test_buttons_that_are_said_to_be_apart_from_their_boxes_are_apart() -> None:
    world = make("puzzle-3x3")
    assert isinstance(world, ArmWorld)
    model = copy.copy(world.domain.model)
    buttons, data = Buttons(model), mujoco.MjData(model)
    assert len(buttons.pairs) == 9
    assert buttons.low < -0.026
    assert buttons.high > 0.2
    bodies = {tuple(sorted(model.body(name).id for name in pair)) for pair in buttons.pairs}
    for place in np.random.default_rng(0).uniform(buttons.low, buttons.high, 300):
        data.qpos[buttons.columns] = place
        mujoco.mj_fwdPosition(model, data)
        met = {tuple(sorted(pair)) for pair in model.geom_bodyid[data.contact.geom].tolist()}
        assert not met & bodies
    inside = np.tile(model.qpos0, (3, 1))
    inside[1, buttons.columns[4]] = buttons.low - 1e-6
    inside[2, buttons.columns[0]] = np.nan
    assert buttons.apart(inside).tolist() == [True, False, False]


@pytest.mark.parametrize("name", NAMES)
def test_models_agree_in_everything_but_what_is_only_seen(name: str) -> None:
    fast, _, lean = _worlds(name)
    small, full = lean.model, fast._model
    kept = (full.geom_contype | full.geom_conaffinity) > 0
    assert 0 < kept.sum() == small.ngeom < full.ngeom
    compared = 0
    for field in dir(full):
        theirs = getattr(full, field)
        if field.startswith("_") or not isinstance(theirs, np.ndarray):
            continue
        if field.startswith("geom_") and field not in ("geom_dataid", "geom_matid"):
            assert np.array_equal(getattr(small, field), theirs[kept]), field
        elif field.startswith(
            ("body_", "dof_", "jnt_", "actuator_", "tendon_", "eq_", "site_", "qpos", "wrap_")
        ):
            if any(word in field for word in OWN):
                continue
            assert np.array_equal(getattr(small, field), theirs), field
        else:
            continue
        compared += 1
    assert compared > 100
    shapes, wanted = small.geom_dataid, full.geom_dataid[kept]
    for mesh, other in zip(shapes[shapes >= 0], wanted[shapes >= 0], strict=True):
        ours, theirs = (
            slice(m.mesh_vertadr[k], m.mesh_vertadr[k] + m.mesh_vertnum[k])
            for m, k in ((small, mesh), (full, other))
        )
        assert np.array_equal(small.mesh_vert[ours], full.mesh_vert[theirs])
    assert small.stat.meaninertia == full.stat.meaninertia
    for field in dir(full.opt):
        if not field.startswith("_"):
            assert np.array_equal(getattr(small.opt, field), getattr(full.opt, field)), field


def test_another_gripper_is_stepped_on_the_full_model() -> None:
    fast, _, lean = _worlds("cube-single")
    other = copy.copy(fast._model)
    other.jnt_axis[other.joint("ur5e/robotiq/left_follower_joint").id] = [0, 1, 0]
    with pytest.raises(NotStudied, match="plane"):
        Fingers(other)
    assert lean_table(mujoco.MjSpec(), other) is None
    other = copy.copy(fast._model)
    other.opt.gravity[2] = -1.0
    assert lean.agrees(fast._model)
    assert not lean.agrees(other)


def _count_full_steps(world: ArmWorld, again: list[int]) -> None:
    batch = world._running()
    step = batch.step

    def counted(ids: NDArray[np.int64] | None = None, **how: int) -> None:
        again.extend([] if ids is None else ids)
        step(ids, **how)

    batch.step = counted


def _touching(world: ArmWorld, physics: Array) -> set[frozenset[str]]:
    """Bodies that touch each other in these states."""
    model = world.domain.model
    data, found = mujoco.MjData(model), set()
    for row in physics:
        data.qpos[:] = row[: model.nq]
        mujoco.mj_fwdPosition(model, data)
        for one, other in model.geom_bodyid[data.contact.geom].tolist():
            found.add(frozenset((model.body(one).name, model.body(other).name)))
    return found
