"""Leave out parts of a physics step that nobody reads: the same motion to the last bit, in less time.

Three parts of ``mj_step`` do not move the body. The Python bindings give MuJoCo a clock, which it reads
dozens of times per step to fill ``MjData.timer``. Sensors are evaluated at every substep, read or not. And
the solver looks for islands, groups of bodies that do not touch, where a single tree of joints can only be
one. docs/speed.md has what each of them costs.
"""

import copy
import ctypes

import mujoco

from zol.worlds.dmc.domain import Model


def strip_unused(model: Model, reads: tuple[str, ...]) -> Model:
    """A copy of the model that computes what motion and the derived fields in ``reads`` need."""
    model = copy.copy(model)
    if "sensordata" not in reads:
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR
    if model.ntree == 1:
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return model


def without_midphase(model: Model) -> Model:
    """The model, its collisions found without trees of bounding boxes.

    Among some fifty geoms a tree costs more than it saves: a tenth of a step, for the same motion to the last
    bit. For OGBench's worlds; the bodies of dm_control touch little but the floor.
    """
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    return model


def stop_clock() -> bool:
    """Take MuJoCo's clock away, in the whole process; whether that was possible.

    ``MjData.timer`` stays at zero from then on. ``mujoco.set_mjcb_time(None)`` brings the clock back, and one
    that the user has set is left alone: whoever sets it wants to read it.
    """
    if mujoco.get_mjcb_time() is not None:
        return False
    try:  # found through the bindings, which are linked to MuJoCo's own library
        clock = ctypes.c_void_p.in_dll(ctypes.CDLL(mujoco._functions.__file__), "mjcb_time")
    except (OSError, ValueError):  # another platform or another build: slower, and the same motion
        return False
    clock.value = None
    return True
