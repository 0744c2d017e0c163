"""HumEnv, the humanoid of Meta Motivo: 358 observations, 69 actions, 30 actions per second.

Its code and robot are not ours to ship (their licence is non-commercial), so this world needs the original
package, installed by the user from GitHub. Of that package only one data file is read, the robot
(``assets/robot.xml``): nothing of it is imported, which matters because the name *humenv* on PyPI belongs
to somebody else. A package is accepted for the robot it carries, never for its name.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import mujoco
import mujoco.batch
import numpy as np
import torch
from torch import Tensor

from zol.common.errors import WorldError
from zol.fields import States
from zol.tasks import Task, humenv
from zol.worlds.dmc.domain import Array, Batch, Domain, Model
from zol.worlds.dmc.world import ControlWorld

INSTALL = 'pip install "git+https://github.com/facebookresearch/humenv.git"'
SUBSTEPS = 15
EPISODE = 300
ROWS_AT_ONCE = 4096
Seen = tuple[Tensor, Tensor, Tensor, Tensor]  # xpos, xmat, velocity and gyro of a Body


def world() -> ControlWorld:
    """HumEnv as a batched world with its 45 reward tasks; episodes begin with a fall."""
    model = load_robot(robot_file())
    read = Kinematics(model)
    domain = Domain(
        name="humenv",
        model=model,
        substeps=SUBSTEPS,
        layout=humenv.LAYOUT,
        tasks={name: _task(name, formula, read) for name, formula in humenv.REWARDS.items()},
        discount=0.98,
        starts=falls,
        observe=observe,
        reads=("xpos", "xmat", "sensordata"),
        stage=mujoco.mjtStage.mjSTAGE_VEL,
        camera=0,
    )
    made = ControlWorld(domain)
    made.episode_length = EPISODE
    return made


def robot_file() -> Path:
    """The robot of the installed humenv package, found without importing it."""
    spec = find_spec("humenv")
    if spec is None:
        raise WorldError(
            f"HumEnv is not installed. It is not on PyPI (the package of that name is not it): {INSTALL}"
        )
    for folder in spec.submodule_search_locations or ():
        robot = Path(folder) / "assets" / "robot.xml"
        if robot.is_file():
            return robot
    raise WorldError(
        f"the installed package 'humenv' ({spec.origin}) has no assets/robot.xml: it is not Meta's HumEnv. "
        "A stranger holds that name on PyPI, and installing a stranger's package runs their code: remove it "
        f"(pip uninstall humenv), then {INSTALL}"
    )


def load_robot(path: Path) -> Model:
    """The MuJoCo model, after checking that it is the body that the rewards are written for."""
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise WorldError(f"{path} is not a MuJoCo model: {error}") from error
    bodies = tuple(model.body(i).name for i in range(1, model.nbody))
    sizes = (model.nq, model.nv, model.nu)
    if bodies[:24] != humenv.BODIES or sizes != (76, 75, humenv.ACTIONS):
        raise WorldError(
            f"{path} is not HumEnv's robot: it has {len(bodies)} bodies and (nq, nv, nu) = {sizes}; expected "
            f"the 24 bodies of a SMPL skeleton and (76, 75, {humenv.ACTIONS}). To get the real one: {INSTALL}"
        )
    model.opt.timestep = 1.0 / 450.0
    return model


class Kinematics:
    """From simulator states to what rewards read; the last batch is remembered for the next of 45 tasks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._batch: Batch | None = None
        self._last: tuple[Tensor, int, Seen] | None = None
        self._velocity = _sensor(model, "Chest_subtreelinvel")
        self._gyro = _sensor(model, "Pelvis_gyro")

    def __call__(self, physics: Tensor, ctrl: Tensor) -> humenv.Body:
        """Bodies of simulator states ``[..., 151]`` with controls ``[..., 69]``, in float64."""
        last = self._last
        if last is None or last[0] is not physics or last[1] != physics._version:
            last = self._last = (physics, physics._version, self._compute(physics))
        return humenv.Body(*last[2], ctrl.double())

    def _compute(self, physics: Tensor) -> Seen:
        rows = physics.detach().reshape(-1, physics.shape[-1]).double().cpu().numpy()
        size = min(len(rows), ROWS_AT_ONCE)
        if self._batch is None or self._batch.nsim < size:
            self._batch = mujoco.batch.Batch(self._model, size, 0, False)
            for name in ("xpos", "xmat", "sensordata"):
                self._batch.bind(name)
        batch = self._batch
        parts = []
        for begin in range(0, len(rows), batch.nsim):
            part = rows[begin : begin + batch.nsim]
            ids = np.arange(len(part))
            batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
            batch.state[: len(part), 1 : 1 + part.shape[1]] = part
            batch.forward(ids, stage=mujoco.mjtStage.mjSTAGE_VEL)
            turned = batch.xmat[: len(part), 1:25].reshape(-1, 24, 3, 3)
            sensors = batch.sensordata[: len(part)]
            fields = (
                batch.xpos[: len(part), 1:25],
                turned,
                sensors[:, self._velocity],
                sensors[:, self._gyro],
            )
            parts.append([torch.from_numpy(field.copy()) for field in fields])
        joined = [torch.cat(field) for field in zip(*parts, strict=True)]
        xpos, xmat, velocity, gyro = (f.reshape(*physics.shape[:-1], *f.shape[1:]) for f in joined)
        return xpos, xmat, velocity, gyro


def observe(batch: Batch) -> Array:
    """Observations ``[n, 358]``: pose and velocities of all bodies in the frame of the pelvis's heading."""
    n = batch.nsim
    xpos = batch.xpos[:, 1:25]
    xmat = batch.xmat[:, 1:25].reshape(n, 24, 3, 3)
    # The skeleton is modelled y up and x left, so the pelvis's z axis is what points ahead.
    heading = np.arctan2(xmat[:, 0, 1, 2], xmat[:, 0, 0, 2])
    c, s, o, i = np.cos(heading), np.sin(heading), np.zeros(n), np.ones(n)
    back = np.stack([c, s, o, -s, c, o, o, o, i], axis=1).reshape(n, 1, 3, 3)  # turns by −heading

    def turn(vectors: Array) -> Array:
        return np.matmul(back, vectors[..., None])[..., 0]

    velocities = batch.sensordata[:, :144].reshape(n, 2, 24, 3)
    positions = turn(xpos - xpos[:, :1])[:, 1:]
    axes = np.matmul(back, xmat)[..., [0, 2]].swapaxes(-1, -2)  # first and third column of each rotation
    parts = (xpos[:, :1, 2], positions, axes, turn(velocities[:, 0]), turn(velocities[:, 1]))
    return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)


def falls(model: Model, n: int, generator: torch.Generator) -> Array:
    """Start states: dropped from 1 m in any orientation, then up to 4 random actions; rows (qpos, qvel)."""
    physics = model.nq + model.nv
    batch = mujoco.batch.Batch(model, n, 0, True)
    batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
    batch.state[:, 1 : 1 + physics] = 0.0
    batch.state[:, 3] = 1.0  # after time, x and y
    batch.state[:, 4:8] = torch.rand(n, 4, generator=generator, dtype=torch.float64).numpy()
    batch.forward(stage=mujoco.mjtStage.mjSTAGE_ACC)
    count = torch.randint(0, 5, (n,), generator=generator).numpy()
    chosen: Array = batch.state[:, 1 : 1 + physics].copy()
    for step in range(1, 5):
        action = torch.rand(n, model.nu, generator=generator, dtype=torch.float64) - 0.5
        batch.ctrl[:] = action.numpy()
        batch.step(nstep=SUBSTEPS, stage=mujoco.mjtStage.mjSTAGE_VEL)
        chosen[count >= step] = batch.state[count >= step, 1 : 1 + physics]
    return chosen


def _task(name: str, formula: humenv.Formula, read: Callable[[Tensor, Tensor], humenv.Body]) -> Task:
    def reward(states: States) -> Tensor:
        return formula(read(states.need_physics(), states.need_action()))

    return Task(name, reward)


def _sensor(model: Model, name: str) -> slice:
    sensor = model.sensor(name)
    return slice(int(sensor.adr[0]), int(sensor.adr[0] + sensor.dim[0]))
