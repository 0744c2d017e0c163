"""Planar walker: 24 observations, 6 motors, 10 physics steps of 2.5 ms per action."""

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task, tolerance
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, suite_model, uniform
from zol.worlds.dmc.planar import Planar, planar, planar_layout
from zol.worlds.dmc.world import ControlWorld

STAND_HEIGHT = 1.2  # metres

BODIES = "torso, right thigh, right leg, right foot, left thigh, left leg, left foot"
JOINTS = "right hip, right knee, right ankle, left hip, left knee, left ankle"
FIELDS = (
    Field("orientations", 0, 14, "", f"cos and sin of the absolute pitch, in turn, of {BODIES}"),
    Field("torso_height", 14, 1, "m", "height of the torso's centre above the floor"),
    Field("root_z_velocity", 15, 1, "m/s", "vertical velocity of the torso"),
    Field("root_x_velocity", 16, 1, "m/s", "horizontal velocity of the torso"),
    Field("pitch_rate", 17, 1, "rad/s", "pitch rate of the torso, positive when falling forward"),
    Field("joint_velocities", 18, 6, "rad/s", JOINTS),
)


def world() -> ControlWorld:
    """The walker as a batched world."""
    model = suite_model("walker.xml")
    domain = Domain(
        name="walker",
        model=model,
        substeps=10,
        layout=layout(planar(model)),
        tasks={task.name: task for task in TASKS},
        discount=0.98,
        starts=starts,
        observe=observe,
        reads=("xmat", "xpos"),
        stage=mujoco.mjtStage.mjSTAGE_POS,
        camera=0,
    )
    return ControlWorld(domain)


def layout(body: Planar) -> Layout:
    """The walker's columns, and the quantities its rewards derive from them."""

    def pitches(s: States) -> tuple[Tensor, Tensor]:
        return s["orientations"][..., 0::2], s["orientations"][..., 1::2]

    def torso_upright(s: States) -> Tensor:
        """cos of the torso's pitch: 1 upright, −1 upside down."""
        return s.obs[..., 0]

    def qvel(s: States) -> Tensor:
        """all 9 velocities: root z, root x, pitch, then the six joints."""
        return s.obs[..., 15:24]

    return planar_layout(body, FIELDS, pitches, torso_upright, qvel)


def observe(batch: Batch) -> Array:
    """Orientations, torso height and velocities, exactly as dm_control lists them."""
    obs = np.empty((batch.nsim, 24))
    turned = batch.xmat[:, 1:]
    obs[:, 0:14:2], obs[:, 1:14:2] = turned[:, :, 0], turned[:, :, 2]  # xx = cos θ, xz = sin θ
    obs[:, 14] = batch.xpos[:, 1, 2]
    obs[:, 15:] = batch.qvel
    return obs


def starts(model: Model, n: int, generator: torch.Generator) -> Array:
    """Any pitch, any legal pose, at rest, with the torso at its default height."""
    low, high = model.jnt_range.T.copy()
    pitch = model.joint("rooty").id
    low[pitch], high[pitch] = -np.pi, np.pi  # the two root slides have the range [0, 0]: they stay there
    return np.concatenate([uniform(low, high, (n, model.nq), generator), np.zeros((n, model.nv))], axis=1)


def _stand(s: States) -> Tensor:
    tall = tolerance(s["torso_height"], STAND_HEIGHT, margin=STAND_HEIGHT / 2)
    return (3 * tall + (1 + s["torso_upright"]) / 2) / 4


def _move(s: States, target: float) -> Tensor:
    fast = tolerance(s["speed"], target, margin=target / 2, shape="linear", at_margin=0.5)
    return _stand(s) * (5 * fast + 1) / 6


def _flip(s: States) -> Tensor:
    turning = tolerance(s["angular_momentum"], 5.0, margin=5.0, shape="linear", at_margin=0.0)
    return _stand(s) * (5 * turning + 1) / 6


def _spin(s: States) -> Tensor:
    return tolerance(s["angular_momentum"], 10.0, margin=10.0, shape="linear", at_margin=0.0)


TASKS = (
    Task("stand", _stand, "torso at 1.2 m or more, and upright"),
    Task("walk", lambda s: _move(s, 1.0), "stand, moving forward at 1 m/s or more"),
    Task("run", lambda s: _move(s, 8.0), "stand, moving forward at 8 m/s or more"),
    Task("spin", _spin, "angular momentum of 10 kg·m²/s or more, in any posture"),
    Task("flip", _flip, "stand, with angular momentum of 5 kg·m²/s or more"),
)
