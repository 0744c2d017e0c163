"""Planar cheetah: 17 observations, 6 motors, one physics step of 10 ms per action."""

import mujoco
import mujoco.batch
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task, tolerance
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, suite_model, uniform
from zol.worlds.dmc.planar import Planar, planar, planar_layout
from zol.worlds.dmc.world import ControlWorld

SETTLING_STEPS = 200  # uncontrolled physics steps before an episode, as in dm_control

JOINTS = "back thigh, back shin, back foot, front thigh, front shin, front foot"
FIELDS = (
    Field("root_z", 0, 1, "m", "height of the torso relative to 0.7 m"),
    Field("pitch", 1, 1, "rad", "pitch of the torso, positive when leaning forward; not wrapped"),
    Field("joint_angles", 2, 6, "rad", JOINTS),
    Field("root_x_velocity", 8, 1, "m/s", "horizontal velocity of the torso"),
    Field("root_z_velocity", 9, 1, "m/s", "vertical velocity of the torso"),
    Field("pitch_rate", 10, 1, "rad/s", "pitch rate of the torso"),
    Field("joint_velocities", 11, 6, "rad/s", JOINTS),
)


def world() -> ControlWorld:
    """The cheetah as a batched world."""
    model = suite_model("cheetah.xml")
    domain = Domain(
        name="cheetah",
        model=model,
        substeps=1,
        layout=layout(planar(model), float(model.body("torso").pos[2])),
        tasks={task.name: task for task in TASKS},
        discount=0.98,
        starts=starts,
        observe=observe,
        reads=(),
        stage=mujoco.mjtStage.mjSTAGE_NONE,
        camera=0,
    )
    return ControlWorld(domain)


def layout(body: Planar, rest_height: float) -> Layout:
    """The cheetah's columns, and the quantities its rewards derive from them."""
    # The observation leaves out the horizontal position (joint 0), which turns nothing.
    pitch_of = body.pitch_of[:, 1:]

    def pitches(s: States) -> tuple[Tensor, Tensor]:
        pitch = s.obs[..., :8] @ pitch_of.to(s.obs).T
        return pitch.cos(), pitch.sin()

    def torso_height(s: States) -> Tensor:
        """height of the torso's centre above the floor [m]."""
        return rest_height + s["root_z"]

    def qvel(s: States) -> Tensor:
        """all 9 velocities: root x, root z, pitch, then the six joints."""
        return s.obs[..., 8:17]

    return planar_layout(body, FIELDS, pitches, torso_height, qvel)


def observe(batch: Batch) -> Array:
    """Every position but the horizontal one, then every velocity."""
    return np.concatenate([batch.qpos[:, 1:], batch.qvel], axis=1)


def starts(model: Model, n: int, generator: torch.Generator) -> Array:
    """Any legal pose in the air, then two seconds of falling and settling without control.

    dm_control writes the pose into a simulation whose forces were computed for the default pose, so that its
    first settling step is a free fall without the springs of the legs. It shows in where the body comes to
    rest, hence we do the same: one step in the default pose, and then the pose is added.
    """
    limited = model.jnt_limited == 1
    low, high = model.jnt_range[limited].T
    batch = mujoco.batch.Batch(model, n)
    batch.step()
    batch.qpos[:, limited] += uniform(low, high, (n, int(limited.sum())), generator)
    batch.step(nstep=SETTLING_STEPS - 1)
    return np.concatenate([batch.qpos, batch.qvel], axis=1)


def _push(name: str, field: str, target: float, description: str) -> Task:
    """Reward min(1, max(0, field / target)): a negative target asks for the opposite direction."""

    def reward(s: States) -> Tensor:
        return tolerance(s[field] / target, 1.0, margin=1.0, shape="linear", at_margin=0.0)

    return Task(name, reward, description)


TASKS = (
    _push("run", "speed", 10.0, "forward at 10 m/s or more"),
    _push("run_backward", "speed", -10.0, "backward at 10 m/s or more"),
    _push("walk", "speed", 2.0, "forward at 2 m/s or more"),
    _push("walk_backward", "speed", -2.0, "backward at 2 m/s or more"),
    _push("flip", "angular_momentum", 5.0, "angular momentum of 5 kg·m²/s or more, forward"),
    _push("flip_backward", "angular_momentum", -5.0, "angular momentum of 5 kg·m²/s or more, backward"),
)
