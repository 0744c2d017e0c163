"""A table with a robot arm: a UR5e with a two-finger gripper that points down, 20 actions per second.

An action moves the gripper by up to 5 cm along x, y and z, turns it about the vertical by up to 0.3 rad and
opens or closes it; inverse kinematics turn the pose that it asks for into joint angles, which servos then
follow for 25 physics steps of 2 ms. What is on the table is in :mod:`zol.worlds.ogbench.cube` and its
neighbours.

Observations show the gripper as MuJoCo last computed it, which is before the last of the 25 physics steps,
and the next action starts from there, as in the package. A simulator state does not hold that, so a state
that is put back with ``set_physics`` shows the gripper where it is: up to a fraction of a millimetre further.
"""

import copy

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, States
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, uniform
from zol.worlds.dmc.strip import without_midphase
from zol.worlds.dmc.world import ROWS_AT_ONCE, ControlWorld
from zol.worlds.ogbench import rotations
from zol.worlds.ogbench.inverse_kinematics import ArmInverse
from zol.worlds.ogbench.lean_table import lean_table
from zol.worlds.ogbench.package import model_file

SUBSTEPS = 25
TIMESTEP = 0.002
ARM, GRIPPER = slice(0, 6), 6  # joints of the arm, and the one that tells how far the gripper is closed
OBJECTS = 14  # qpos of arm and gripper come first
HOME = np.pi / 2 * np.array([-1.0, -1.0, 1.0, -1.0, -1.0, 0.0])
STIFFNESS = (4500.0, 4500.0, 4500.0, 2000.0, 2000.0, 500.0)  # of the servos
STRETCH = np.array([0.05, 0.05, 0.05, 0.3, 1.0])  # what an action of 1 means: metres, radians, gripper
WORKSPACE = np.array([[0.25, -0.35, 0.02], [0.6, 0.35, 0.35]])
ABOVE_TABLE = np.array([[0.25, -0.35, 0.20], [0.6, 0.35, 0.35]])  # where episodes begin
CENTRE, SCALE = np.array([0.425, 0.0, 0.0]), 10.0  # observed places are SCALE · (metres − CENTRE)
GRIPPER_SCALE, CLOSED, FULL_FORCE = 3.0, 0.8, 50.0
ARM_FIELDS = (
    Field("joints", 0, 6, "rad", "of the arm, from shoulder to wrist"),
    Field("joint_velocities", 6, 6, "rad/s"),
    Field("effector", 12, 3, "dm", "place of the gripper's fingertips, off (0.425, 0, 0) m"),
    Field("effector_yaw", 15, 2, "", "cosine and sine of its turn about the vertical"),
    Field("gripper", 17, 1, "", "0 open, 3 closed"),
    Field("contact", 18, 1, "", "force on a finger, 0 none to 1"),
)
ARM_SIZE = 19
SENSOR = "force_at_the_flange"  # a sensor that makes MuJoCo compute contact forces


class ArmWorld(ControlWorld):
    """Arm and table, as many as asked for; ``memory`` columns of a state are kept here and not by MuJoCo."""

    memory_dim = 0

    def __init__(self, domain: Domain, spec: "mujoco.MjSpec", *, arm_bounds: Array = ABOVE_TABLE) -> None:
        """``spec`` is what the domain's model was compiled from; it is used up."""
        super().__init__(domain)
        self.lean = lean_table(spec, self._model)
        self.arm_bounds = arm_bounds
        self.action_dim = len(STRETCH)
        model = domain.model
        self._memory: Array = np.zeros((0, self.memory_dim))
        self._pinch, self._flange = (int(model.site(name).id) for name in (PINCH, FLANGE))
        self._pad = int(model.body(PAD).id)
        self._sensing = copy.copy(self._model)
        self._sensing.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        self.inverse = ArmInverse(arm_alone(), "attachment_site")
        self._offset = self._flange_in_pinch()

    def reach(self, place: Array, yaw: Array, begin: Array | None = None) -> Array:
        """Joints ``[n, 6]`` that bring the fingertips to places ``[n, 3]``, pointing down, turned by yaws."""
        down = rotations.multiply(rotations.about_z(yaw), rotations.STRAIGHT_DOWN)
        where, turn = self._offset
        flange = rotations.rotate(down, np.broadcast_to(where, place.shape)) + place
        start = np.tile(HOME, (len(place), 1)) if begin is None else begin
        return self.inverse.solve(flange, rotations.multiply(down, turn), start)

    def arm_starts(self, n: int, generator: torch.Generator) -> Array:
        """qpos ``[n, nq]`` with the gripper anywhere above the table; objects are as in the model."""
        place = uniform(self.arm_bounds[0], self.arm_bounds[1], (n, 3), generator)
        yaw = uniform(np.array(-np.pi), np.array(np.pi), (n,), generator)
        qpos = np.tile(self.domain.model.qpos0, (n, 1))
        qpos[:, ARM] = self.reach(place, yaw)
        return qpos

    @property
    def physics(self) -> Tensor:
        """Simulator states (qpos, qvel, and what the world remembers) of the running environments; a copy."""
        plain = super().physics
        return torch.cat([plain, torch.from_numpy(self._memory)], -1) if self.memory_dim else plain

    def set_physics(self, physics: Tensor) -> States:
        """Put as many environments as there are rows into these states."""
        if not self.memory_dim:
            return super().set_physics(physics)
        plain, memory = self._split(physics)
        self._memory = memory
        return super().set_physics(plain)

    def observe(self, physics: Tensor) -> Tensor:
        """Observations ``[n, D]`` of states ``[n, P]``: those that ``set_physics`` would give."""
        if not self.memory_dim:
            return super().observe(physics)
        plain, memory = self._split(physics)
        kept, parts = self._memory, []
        try:
            for begin in range(0, len(plain), ROWS_AT_ONCE):
                part = plain[begin : begin + ROWS_AT_ONCE]
                self._memory = memory[begin : begin + ROWS_AT_ONCE]
                parts.append(super().observe(part))
        finally:
            self._memory = kept
        return torch.cat(parts)

    def effector(self, batch: Batch) -> tuple[Array, Array]:
        """Place ``[n, 3]`` and yaw ``[n]`` of the fingertips."""
        turned = rotations.from_matrix(batch.site_xmat[:, self._pinch].reshape(-1, 9))
        return batch.site_xpos[:, self._pinch], rotations.yaw(turned)

    def observe_arm(self, batch: Batch) -> list[Array]:
        """The first 19 columns of an observation, in parts."""
        place, yaw = self.effector(batch)
        force = np.linalg.norm(self.finger_force(batch), axis=-1, keepdims=True)
        return [
            batch.qpos[:, ARM],
            batch.qvel[:, ARM],
            (place - CENTRE) * SCALE,
            np.cos(yaw)[:, None],
            np.sin(yaw)[:, None],
            gripper_opening(batch) * GRIPPER_SCALE,
            np.clip(force / FULL_FORCE, 0, 1),
        ]

    def finger_force(self, batch: Batch) -> Array:
        """Force and torque on a finger ``[n, 6]`` in the last physics step; none in a state put back."""
        force: Array = batch.cfrc_ext[:, self._pad]
        return force

    def _advance(self, batch: Batch, action: Array) -> None:
        step = 0.5 * (action + 1) * (2 * STRETCH) - STRETCH
        place, yaw = self.effector(batch)
        down = rotations.multiply(
            rotations.multiply(rotations.about_z(step[:, 3]), rotations.about_z(yaw)),
            rotations.inverse(rotations.STRAIGHT_DOWN),
        )
        wanted = np.clip(place + step[:, :3], *WORKSPACE)
        closed = np.clip(gripper_opening(batch)[:, 0] + step[:, 4], 0.0, 1.0)
        angle = np.clip(rotations.yaw(down), -np.pi, np.pi)
        self._ctrl[:, ARM] = self.reach(wanted, angle, batch.qpos[:, ARM])
        self._ctrl[:, GRIPPER] = 255.0 * closed
        none = mujoco.mjtStage.mjSTAGE_NONE
        if self.lean is None:
            batch.step(nstep=SUBSTEPS - 1, stage=none)
        else:
            self.lean.step(batch, SUBSTEPS - 1)
        batch.set_models(self._sensing)  # contact forces are wanted once per action, not 25 times
        batch.step(nstep=1, stage=none)
        batch.set_models(None)

    def _flange_in_pinch(self) -> tuple[Array, Array]:
        """Place and orientation of the flange, seen from the fingertips; the gripper hangs on it rigidly."""
        model = self.domain.model
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        turns = rotations.from_matrix(data.site_xmat[[self._pinch, self._flange]])
        back = rotations.inverse(turns[0])
        pinch, flange = data.site_xpos[[self._pinch, self._flange]]
        return rotations.rotate(back, flange) + -rotations.rotate(back, pinch), rotations.multiply(
            back, turns[1]
        )

    def _split(self, physics: Tensor) -> tuple[Tensor, Array]:
        rows = physics.detach().to("cpu", torch.float64)
        if rows.ndim != 2 or rows.shape[1] != self.domain.physics_dim + self.memory_dim:
            self._check_physics(rows)  # says what was expected
        memory: Array = rows[:, self.domain.physics_dim :].numpy().copy()
        return rows[:, : self.domain.physics_dim], memory


def gripper_opening(batch: Batch) -> Array:
    """How far the gripper is closed, 0 to 1, ``[n, 1]``."""
    opening: Array = np.clip(batch.qpos[:, GRIPPER : GRIPPER + 1] / CLOSED, 0, 1)
    return opening


PINCH, FLANGE, PAD = "ur5e/robotiq/pinch", "ur5e/attachment_site", "ur5e/robotiq/right_pad"


def arm_alone() -> Model:
    """The arm without gripper and table, for inverse kinematics."""
    return mujoco.MjModel.from_xml_path(
        str(model_file("manipspace/descriptions/universal_robots_ur5e/ur5e.xml"))
    )


def table(camera: tuple[tuple[float, ...], tuple[float, ...]]) -> "mujoco.MjSpec":
    """A table with walls that only objects feel, and the arm; ``camera`` is (pos, xyaxes)."""
    spec = _read("floor_wall.xml")
    arm, gripper = _read("universal_robots_ur5e/ur5e.xml"), _read("robotiq_2f85/2f85.xml")
    for part in (*arm.lights, *arm.keys):
        arm.delete(part)
    for part in gripper.keys:
        gripper.delete(part)
    for each in (spec, arm, gripper):  # what the parts disagree about
        each.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        each.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        each.option.impratio = 10
        each.option.timestep = TIMESTEP
    flange = arm.site("attachment_site")
    wrist = flange.parent.add_body(name="robotiq/", pos=flange.pos, quat=flange.quat)
    arm.attach(gripper, frame=wrist.add_frame(), prefix="robotiq/")
    base = spec.worldbody.add_body(name="ur5e/")
    spec.attach(arm, frame=base.add_frame(), prefix="ur5e/")
    spec.worldbody.add_camera(name="front", pos=camera[0], xyaxes=camera[1])
    spec.add_sensor(
        name=SENSOR, type=mujoco.mjtSensor.mjSENS_FORCE, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=FLANGE
    )
    spec.stat.center, spec.stat.extent = [0.3, 0.0, 0.15], 0.7
    spec.visual.map.znear, spec.visual.map.zfar = 0.1, 10.0
    return spec


def compiled(spec: "mujoco.MjSpec") -> Model:
    """The model, with the servo gains of the benchmark."""
    model = without_midphase(spec.compile())
    model.actuator_gainprm[ARM, 0] = STIFFNESS
    model.actuator_biasprm[ARM, 1] = -np.array(STIFFNESS)
    return model


def _read(name: str) -> "mujoco.MjSpec":
    return mujoco.MjSpec.from_file(str(model_file(f"manipspace/descriptions/{name}")))
