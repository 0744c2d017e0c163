"""What stripped physics leaves out does not move the body: bit-equal to MuJoCo's model as it comes."""

import mujoco
import numpy as np
import pytest
import torch
from control_reference import DOMAINS
from mujoco.batch import Batch
from present import present

from zol.worlds import make
from zol.worlds.dmc.strip import stop_clock, strip_unused
from zol.worlds.dmc.world import ControlWorld

STEPS, ENVIRONMENTS = 300, 20
SENSORS, ISLANDS = mujoco.mjtDisableBit.mjDSBL_SENSOR, mujoco.mjtDisableBit.mjDSBL_ISLAND
TWO_BALLS = """
<mujoco>
  <worldbody>
    <body><freejoint/><geom size="0.1"/></body>
    <body pos="1 0 0"><freejoint/><geom size="0.1"/></body>
  </worldbody>
</mujoco>
"""


def control_world(domain: str) -> ControlWorld:
    world = make(domain)
    assert isinstance(world, ControlWorld)
    return world


@pytest.fixture
def stock_clock():
    """MuJoCo's own clock before and after, whatever the test does to it."""
    mujoco.set_mjcb_time(None)
    yield
    mujoco.set_mjcb_time(None)


@pytest.mark.parametrize("domain", DOMAINS)
def test_motion_and_what_is_read_are_those_of_the_stock_model(domain):
    world, generator = control_world(domain), torch.Generator().manual_seed(1)
    model, reads = world.domain.model, world.domain.reads
    starts = present(world.reset(ENVIRONMENTS, generator).physics).numpy()
    low, high = model.actuator_ctrlrange.T
    batches = [Batch(m, ENVIRONMENTS, 0, True) for m in (model, strip_unused(model, reads))]
    fields = [[batch.bind(name) for name in ("ncon", *reads)] for batch in batches]
    for batch in batches:
        batch.state[:, 1 : 1 + starts.shape[1]] = starts
    # The same action for twenty steps drives joints to their limits and bodies into floor and walls.
    actions = np.random.default_rng(0).uniform(low, high, (STEPS // 20, ENVIRONMENTS, model.nu))
    touching = 0
    for action in actions.repeat(20, axis=0):
        for batch in batches:
            batch.ctrl[:] = action
            batch.step(nstep=world.domain.substeps, stage=mujoco.mjtStage.mjSTAGE_VEL)
        np.testing.assert_array_equal(batches[1].state, batches[0].state)
        for stock, ours in zip(*fields, strict=True):
            np.testing.assert_array_equal(ours, stock)
        touching += int((fields[0][0] > 0).sum())
    assert touching > STEPS, "without contacts there is nothing to solve"


def test_only_what_nobody_needs_is_left_out():
    walker, quadruped = control_world("walker").domain, control_world("quadruped").domain
    before = walker.model.opt.disableflags
    assert strip_unused(walker.model, walker.reads).opt.disableflags & SENSORS
    assert walker.model.opt.disableflags == before  # a copy was changed
    # The quadruped observes its sensors.
    assert not strip_unused(quadruped.model, quadruped.reads).opt.disableflags & SENSORS
    two_balls = mujoco.MjModel.from_xml_string(TWO_BALLS)
    assert not strip_unused(two_balls, ()).opt.disableflags & ISLANDS  # here they can pay


def test_the_clock_stops_and_starts_again(stock_clock):
    assert seconds_in_step() > 0
    assert stop_clock()
    assert seconds_in_step() == 0
    mujoco.set_mjcb_time(None)
    assert seconds_in_step() > 0


def test_the_users_own_clock_is_left_alone(stock_clock):
    ticks = iter(range(10**6))
    mujoco.set_mjcb_time(lambda: float(next(ticks)))
    assert not stop_clock()
    assert seconds_in_step() >= 1


def seconds_in_step() -> float:
    model = mujoco.MjModel.from_xml_string(TWO_BALLS)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data)
    return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration
