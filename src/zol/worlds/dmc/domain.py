"""What one control domain is: a MuJoCo model, its named observations, its start states and its tasks."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from zol.common.errors import MissingExtra
from zol.fields import Layout
from zol.tasks import Task

# mujoco ships no type information.
Model = Any
Batch = Any
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Domain:
    """The description from which :class:`~zol.worlds.dmc.world.ControlWorld` makes a world."""

    name: str
    model: Model
    substeps: int
    """Physics steps per control step."""
    layout: Layout
    tasks: Mapping[str, Task]
    discount: float
    starts: Callable[[Model, int, torch.Generator], Array]
    """``n`` start states, rows of (qpos, qvel, act)."""
    observe: Callable[[Batch], Array]
    """Observations ``[n, D]``, a new array, from a batch whose ``stage`` has been computed."""
    reads: tuple[str, ...]
    """The derived MuJoCo fields that ``observe`` reads; state fields (qpos, qvel, act) are always there."""
    stage: int
    """The last stage of MuJoCo's pipeline that ``observe`` depends on."""
    camera: int
    """The camera that pictures of this domain use."""

    @property
    def physics_dim(self) -> int:
        """Length of a simulator state: qpos, qvel and actuator activations."""
        return int(self.model.nq + self.model.nv + self.model.na)

    @property
    def control_timestep(self) -> float:
        """Seconds between two actions."""
        return float(self.model.opt.timestep * self.substeps)


def suite_file(name: str) -> str:
    """Path of one of the XML models that the dm_control package ships.

    The package is located, not imported: its import pulls in OpenGL and a second set of bindings.
    """
    spec = find_spec("dm_control")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("dm_control", "dmc", f"the model {name}")
    return os.path.join(spec.submodule_search_locations[0], "suite", name)


def suite_model(name: str) -> Model:
    """One of dm_control's models, as it comes."""
    with quiet_loading():
        return mujoco.MjModel.from_xml_path(suite_file(name))


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep MuJoCo from writing a log file about an attribute of dm_control's XML that 3.17 deprecates."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def uniform(low: Array, high: Array, shape: tuple[int, ...], generator: torch.Generator) -> Array:
    """Uniform draws in float64 from a torch generator, as a NumPy array."""
    unit: Array = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
    return low + (high - low) * unit
