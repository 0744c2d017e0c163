"""MuJoCo without what does not move the body, against MuJoCo as it comes: 100 environments, random actions.

The steps of :mod:`zol.worlds.dmc.strip` one after the other, in all four control domains. The motion is the
same to the last bit, which is checked here too.
"""

import copy
from collections.abc import Callable
from typing import TypeVar

import mujoco
import numpy as np
import torch
import tyro
from mujoco.batch import Batch

from benchmarks.timing import Case, compare
from zol.worlds import make
from zol.worlds.dmc.domain import Array, Model
from zol.worlds.dmc.strip import stop_clock, strip_unused
from zol.worlds.dmc.world import ControlWorld

Result = TypeVar("Result")
# About a tenth of a second each: a shared machine changes its speed, and close pairs compare best.
STEPS = {"walker": 15, "cheetah": 150, "quadruped": 15, "point_mass_maze": 400}


def main(environments: int = 100, repeats: int = 51, json: bool = False) -> None:
    """Compare speeds.

    Args:
        environments: Environments stepped at once.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    cases = []
    for domain, steps in STEPS.items():
        world = make(domain)
        assert isinstance(world, ControlWorld)
        stock, read = world.domain.model, world.domain.reads
        world.reset(environments, torch.Generator().manual_seed(0))
        starts = world.physics.numpy()
        low, high = stock.actuator_ctrlrange.T
        controls = np.random.default_rng(0).uniform(low, high, (steps, environments, stock.nu))
        reference = bare_physics(stock, world.domain.substeps, starts, controls, clock=True)
        for name, model in (
            ("no clock", copy.copy(stock)),
            ("no clock, no islands", strip_unused(stock, ("sensordata",))),
            ("lean", strip_unused(stock, read)),
        ):
            ours = bare_physics(model, world.domain.substeps, starts, controls, clock=False)
            np.testing.assert_array_equal(ours(), reference())
            cases.append(Case(f"{domain}, {name} / stock", "steps/s", steps * environments, ours, reference))
    compare(cases, repeats, json)


def bare_physics(
    model: Model, substeps: int, starts: Array, controls: Array, clock: bool
) -> Callable[[], Array]:
    """A motion by MuJoCo alone, from start states under given controls; returns where it ends."""
    batch = Batch(model, len(starts))

    def run() -> Array:
        batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        batch.state[:, 1 : 1 + starts.shape[1]] = starts  # after the time
        for control in controls:
            batch.ctrl[:] = control
            batch.step(nstep=substeps)
        return np.array(batch.state)

    return with_clock(run) if clock else run


def with_clock(run: Callable[[], Result]) -> Callable[[], Result]:
    """The same with the clock that the bindings of MuJoCo come with."""

    def timed() -> Result:
        mujoco.set_mjcb_time(None)
        try:
            return run()
        finally:
            stop_clock()

    return timed


if __name__ == "__main__":
    tyro.cli(main)
