"""What can be done to a body from outside: a push, and a pose that it is asked to take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from zol.common.errors import WorldError
from zol.worlds.base import World


@dataclass(frozen=True)
class Joint:
    """A number of a pose that can be chosen."""

    name: str
    column: int  # of the simulator state
    low: float
    high: float


class Body(Protocol):
    """A world's body as the page sees it."""

    timestep: float  # seconds between two actions
    joints: tuple[Joint, ...]

    def pushed(self, physics: Tensor, velocity: Tensor) -> Tensor:
        """Simulator states ``[n, P]`` after a push that adds a velocity ``[3]`` to the body."""

    def resting(self, physics: Tensor) -> Tensor:
        """The same poses ``[n, P]`` at rest."""


class PointBody:
    """A point in the plane, whose simulator state is its position."""

    timestep = 0.05

    def __init__(self, reach: float) -> None:
        self.joints = tuple(Joint(name, k, -reach, reach) for k, name in enumerate("xy"))

    def pushed(self, physics: Tensor, velocity: Tensor) -> Tensor:
        """A point without a velocity is moved instead, by a fifth of a second."""
        return physics + 0.2 * velocity[:2].to(physics)

    def resting(self, physics: Tensor) -> Tensor:
        """It always is."""
        return physics


class MujocoBody:
    """A body of a MuJoCo model, whose simulator state is (qpos, qvel, act)."""

    def __init__(self, model: Any, timestep: float) -> None:
        import mujoco

        self.timestep, self._nq, self._nv = timestep, int(model.nq), int(model.nv)
        self._push = torch.zeros(self._nv, 3, dtype=torch.float64)  # velocity of the root → qvel
        slide, free, hinge = (
            int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("SLIDE", "FREE", "HINGE")
        )
        joints = []
        for j in range(model.njnt):
            kind, dof = int(model.jnt_type[j]), int(model.jnt_dofadr[j])
            column, root = int(model.jnt_qposadr[j]), model.body_parentid[model.jnt_bodyid[j]] == 0
            name = model.joint(j).name.replace("_", " ") or f"joint {j}"
            low, high = model.jnt_range[j] if model.jnt_limited[j] else (-3.14, 3.14)
            if kind == free:
                self._push[dof : dof + 3] = torch.eye(3, dtype=torch.float64)
                joints.append(Joint("height", column + 2, 0.0, 1.5))
            elif kind == slide and root:
                self._push[dof] = torch.from_numpy(model.jnt_axis[j].copy())
                if abs(model.jnt_axis[j][0]) < 0.5 or model.jnt_limited[j]:  # not along the way it walks
                    low, high = model.jnt_range[j] if high > low and model.jnt_limited[j] else (-1.2, 0.6)
                    joints.append(Joint(name, column, float(low), float(high)))
            elif kind == hinge and high > low:
                joints.append(Joint(name, column, float(low), float(high)))
        self.joints = tuple(joints)

    def pushed(self, physics: Tensor, velocity: Tensor) -> Tensor:
        """The root's velocity changes; what hangs on it follows."""
        after = physics.clone()
        after[:, self._nq : self._nq + self._nv] += self._push @ velocity.double()
        return after

    def resting(self, physics: Tensor) -> Tensor:
        """No velocity and no activation."""
        after = physics.clone()
        after[:, self._nq :] = 0.0
        return after


def body_of(world: World) -> Body:
    """The world's body, or an error that says which worlds can be played with."""
    domain = getattr(world, "domain", None)
    if domain is not None:
        return MujocoBody(domain.model, domain.control_timestep)
    if world.layout.find("position") is not None and world.layout.obs_dim == 2:
        return PointBody(1.5)
    raise WorldError(
        f"{world.name} has no body that a page could show: zol play knows MuJoCo worlds and points in "
        "a plane (zol worlds list)"
    )


def posed(body: Body, physics: Tensor, values: Mapping[str, float]) -> Tensor:
    """A simulator state ``[P]`` at rest, with some joints at these values."""
    after = body.resting(physics[None])[0].clone()
    for joint in body.joints:
        if joint.name in values:
            after[joint.column] = values[joint.name]
    return after
