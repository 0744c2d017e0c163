"""Quadruped: 78 observations, 12 actuators with memory, four physics steps of 5 ms per action."""

import mujoco
import mujoco.batch
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task, tolerance
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, quiet_loading, suite_file
from zol.worlds.dmc.world import ControlWorld

LEGS = ("front_left", "front_right", "back_right", "back_left")
LEG_ORDER = "for the legs " + ", ".join(leg.replace("_", " ") for leg in LEGS)
HEIGHT_STEP, HEIGHTS = 0.01, 200  # metres; candidates when looking for a height without contact

FIELDS = (
    Field("joint_angles", 0, 16, "rad", f"yaw, pitch, knee, ankle {LEG_ORDER}"),
    Field("joint_velocities", 16, 16, "rad/s", f"yaw, pitch, knee, ankle {LEG_ORDER}"),
    Field("activations", 32, 12, "", f"actuator memory: yaw, lift, extend {LEG_ORDER}"),
    Field("torso_velocity", 44, 3, "m/s", "velocity of the torso in its own frame, x forward"),
    Field("torso_upright", 47, 1, "", "torso z-axis · world z-axis: 1 upright, −1 upside down"),
    Field("accelerometer", 48, 3, "m/s²", "acceleration sensor in the torso, one physics step old"),
    Field("gyro", 51, 3, "rad/s", "angular velocity of the torso in its own frame"),
    Field("toe_forces", 54, 12, "arcsinh N", f"x, y, z {LEG_ORDER}, one physics step old"),
    Field("toe_torques", 66, 12, "arcsinh N·m", f"x, y, z {LEG_ORDER}, one physics step old"),
)


def world() -> ControlWorld:
    """The quadruped as a batched world."""
    model = flat_model()
    domain = Domain(
        name="quadruped",
        model=model,
        substeps=4,
        layout=layout(model),
        tasks={task.name: task for task in TASKS},
        discount=0.98,
        starts=starts,
        observe=observe,
        reads=("xmat", "sensordata"),
        stage=mujoco.mjtStage.mjSTAGE_ACC,
        camera=2,
    )
    return ControlWorld(domain)


def flat_model() -> Model:
    """dm_control's quadruped on an open floor: no walls, ball, target, terrain or range finders."""
    with quiet_loading():
        spec = mujoco.MjSpec.from_file(suite_file("quadruped.xml"))
        unused = [g for g in spec.geoms if g.name == "terrain" or g.name.startswith("wall_")]
        unused += [s for s in spec.sensors if s.type == mujoco.mjtSensor.mjSENS_RANGEFINDER]
        for element in [*unused, spec.body("ball"), spec.site("target")]:
            spec.delete(element)
        return spec.compile()


def layout(model: Model) -> Layout:
    """Field table of the quadruped, with the quantities its rewards derive from it."""
    base, limbs, heading = _leg_constants(model)

    def forward_velocity(s: States) -> Tensor:
        """velocity of the torso along its own x-axis [m/s]."""
        return s["torso_velocity"][..., 0]

    def torso_speed(s: States) -> Tensor:
        """norm of the torso's velocity [m/s]."""
        speed: Tensor = torch.linalg.vector_norm(s["torso_velocity"], dim=-1)
        return speed

    def com_height(s: States) -> Tensor:
        """height of the whole body's centre of mass [m]; needs the simulator state."""
        qpos = s.need_physics()[..., :23]
        hinges = qpos[..., 7:].reshape(*qpos.shape[:-1], 4, 4)  # [..., leg, (yaw, pitch, knee, ankle)]
        fold = hinges[..., 1:].cumsum(-1)  # absolute pitch of thigh, shin and foot in the leg's own plane
        x, z = limbs.to(qpos).unbind(-1)
        reach = (x * fold.cos() + z * fold.sin()).sum(-1)  # [..., leg]
        rise = (z * fold.cos() - x * fold.sin()).sum(-1)
        yaw = heading.to(qpos) + hinges[..., 0]
        local = torch.stack([(reach * yaw.cos()).sum(-1), (reach * yaw.sin()).sum(-1), rise.sum(-1)], -1)
        w, i, j, k = torch.nn.functional.normalize(qpos[..., 3:7], dim=-1).unbind(-1)
        world_z = torch.stack([2 * (i * k - w * j), 2 * (j * k + w * i), 1 - 2 * (i * i + j * j)], -1)
        return qpos[..., 2] + (world_z * (base.to(qpos) + local)).sum(-1)

    derived = (forward_velocity, torso_speed, com_height)
    return Layout(78, FIELDS, {f.__name__: f for f in derived}, hidden=("com_height",))


def _leg_constants(model: Model) -> tuple[Tensor, Tensor, Tensor]:
    """Mass-weighted offsets of the centre of mass: fixed to the torso, and along each leg.

    A leg yaws about its hip's z-axis; below, thigh, shin and foot turn in one plane. So the centre of mass
    in the torso's frame is base + Σ_legs Rz(heading + yaw) Σ_parts Ry(fold_part) limb_part.

    Returns:
        base [3], limbs [leg, part, (x, z)] and heading [leg].
    """
    torso = model.body("torso")
    base = torso.mass * torso.ipos
    limbs, heading = [], []
    for leg in LEGS:
        hip, knee, ankle, toe = (model.body(f"{part}_{leg}") for part in ("hip", "knee", "ankle", "toe"))
        below_hip = knee.mass + ankle.mass + toe.mass
        base = base + (hip.mass + below_hip) * hip.pos
        thigh = hip.mass * hip.ipos + below_hip * knee.pos
        shin = knee.mass * knee.ipos + (ankle.mass + toe.mass) * ankle.pos
        foot = ankle.mass * ankle.ipos + toe.mass * (toe.pos + toe.ipos)
        limbs.append(np.stack([thigh, shin, foot])[:, [0, 2]])
        heading.append(2 * np.arctan2(hip.quat[3], hip.quat[0]))
    total = model.body_mass.sum()
    return torch.tensor(base / total), torch.tensor(np.stack(limbs) / total), torch.tensor(np.array(heading))


def observe(batch: Batch) -> Array:
    """Joints, activations, torso motion, inertial sensors, toe forces: dm_control's order.

    sensordata is accelerometer 0:3, gyro 3:6, velocimeter 6:9, forces and torques 9:33.
    """
    sensors = batch.sensordata
    parts = [
        batch.qpos[:, 7:],
        batch.qvel[:, 6:],
        batch.act,
        sensors[:, 6:9],
        batch.xmat.reshape(batch.nsim, -1, 9)[:, 1, 8:],  # torso, entry zz
        sensors[:, 0:6],
        np.arcsinh(sensors[:, 9:33]),
    ]
    return np.concatenate(parts, axis=1)


def starts(model: Model, n: int, generator: torch.Generator) -> Array:
    """Any orientation, joints at zero, at rest, at the lowest height on a 1 cm grid that touches nothing.

    The floor is a half-space and the pose is fixed, so contact can only end as the body rises: a bisection
    over the grid finds the same height as dm_control's walk up from the floor, in 8 batched passes.
    """
    batch = mujoco.batch.Batch(model, n)
    contacts = batch.bind("ncon")
    turn = torch.randn((n, 4), generator=generator, dtype=torch.float64)
    batch.qpos[:, 3:7] = torch.nn.functional.normalize(turn, dim=-1).numpy()
    grid = np.cumsum(np.full(HEIGHTS, HEIGHT_STEP)) - HEIGHT_STEP
    touching, free = np.full(n, -1), np.full(n, HEIGHTS - 1)
    while (free - touching > 1).any():
        middle = (touching + free) // 2
        batch.qpos[:, 2] = grid[middle]
        batch.forward(stage=mujoco.mjtStage.mjSTAGE_POS)
        hit = contacts.reshape(n) > 0
        touching, free = np.where(hit, middle, touching), np.where(hit, free, middle)
    batch.qpos[:, 2] = grid[free]
    return np.concatenate([batch.qpos, np.zeros((n, model.nv + model.na))], axis=1)


def _upright(s: States) -> Tensor:
    return tolerance(s["torso_upright"], 1.0, margin=2.0, shape="linear", at_margin=0.0)


def _reach(name: str, read: str, target: float, description: str) -> Task:
    """Upright, times half a reward for standing still that grows to 1 when the field reaches the target."""

    def reward(s: States) -> Tensor:
        return _upright(s) * tolerance(s[read], target, margin=target, shape="linear", at_margin=0.5)

    return Task(name, reward, description)


TASKS = (
    Task("stand", _upright, "torso upright"),
    _reach("walk", "forward_velocity", 0.5, "upright, forward at 0.5 m/s or more"),
    _reach("run", "forward_velocity", 5.0, "upright, forward at 5 m/s or more"),
    _reach("jump", "com_height", 1.0, "upright, centre of mass at 1 m or higher (needs physics)"),
    _reach("roll", "torso_speed", 0.5, "upright, moving in any direction at 0.5 m/s or more"),
    _reach("roll_fast", "torso_speed", 5.0, "upright, moving in any direction at 5 m/s or more"),
)
