"""Centre of mass and angular momentum of a planar body, from pitches and pitch rates alone.

Walker and cheetah move in the x–z plane. Every body k has an absolute pitch θ_k, and a vector (a, b)
fixed in it points to (a cos θ + b sin θ, b cos θ − a sin θ) in the world. Positions relative to the root
are sums of such vectors along the kinematic tree, so the centre of mass of body i is

    r_i = r_root + Σ_k R(θ_k) C_ik,        v_i = v_root + Σ_k ω_k R'(θ_k) C_ik,        ω_k = dθ_k/dt

with constant C_ik that follow from the model's body and joint positions. Therefore the whole-body speed
and the angular momentum about the centre of mass are formulas over arrays: no simulator is called, and
they can be differentiated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.worlds.dmc.domain import Array, Model


@dataclass(frozen=True)
class Planar:
    """Constants of a planar tree of K bodies with J single-axis joints, all float64."""

    pitch_of: Tensor  # [K, J]: absolute pitches are ``joints @ pitch_of.T``; slides have zero columns
    centre: Tensor  # [K, 2]: (x, z) share of every body's rotation in the whole-body centre of mass
    spread: Tensor  # [K, K, 2]: row i places the centre of body i relative to the whole-body centre
    mass: Tensor  # [K]
    inertia: Tensor  # [K]: about the y axis, at each body's own centre

    def pitches(self, joints: Tensor) -> Tensor:
        """Absolute pitches (or pitch rates) ``[..., K]`` of joint angles (or rates) ``[..., J]``."""
        return joints @ self.pitch_of.to(joints).T

    def speed(self, root_speed: Tensor, cos: Tensor, sin: Tensor, rate: Tensor) -> Tensor:
        """Horizontal velocity of the whole-body centre of mass.

        s = v_root + Σ_k ω_k (c_kz cos θ_k − c_kx sin θ_k)
        """
        x, z = self.centre.to(cos).unbind(-1)
        return root_speed + (rate * (z * cos - x * sin)).sum(-1)

    def angular_momentum(self, cos: Tensor, sin: Tensor, rate: Tensor) -> Tensor:
        """Angular momentum about the whole-body centre of mass, around +y (pitching forward).

        L = Σ_i I_i ω_i + m_i (r_iz v_ix − r_ix v_iz), with r_i, v_i relative to the whole-body centre
        """
        x, z = (part.T for part in self.spread.to(cos).unbind(-1))  # [K, K] each, summed over rows
        rate_cos, rate_sin = rate * cos, rate * sin
        r_x, r_z = cos @ x + sin @ z, cos @ z - sin @ x
        v_x, v_z = rate_cos @ z - rate_sin @ x, -rate_cos @ x - rate_sin @ z
        spin = (self.inertia.to(cos) * rate).sum(-1)
        return spin + (self.mass.to(cos) * (r_z * v_x - r_x * v_z)).sum(-1)


Pitches = Callable[[States], tuple[Tensor, Tensor]]
"""cos and sin of the absolute pitch of every body, ``[..., K]`` each."""


def planar_layout(
    body: Planar, fields: tuple[Field, ...], pitches: Pitches, *derived: Callable[[States], Tensor]
) -> Layout:
    """The layout of a planar body: its columns, and quantities that its rewards derive from them.

    ``pitches`` reads the pose, which each body observes in its own way. ``derived`` are its own quantities,
    called as their functions are; ``qvel``, the velocities of all joints, has to be among them.
    """
    obs_dim = sum(field.size for field in fields)

    def speed(s: States) -> Tensor:
        """horizontal velocity of the whole body's centre of mass [m/s]."""
        return body.speed(s["root_x_velocity"], *pitches(s), body.pitches(s["qvel"]))

    def angular_momentum(s: States) -> Tensor:
        """whole-body angular momentum about its centre of mass, around +y [kg·m²/s]."""
        return body.angular_momentum(*pitches(s), body.pitches(s["qvel"]))

    every = (*derived, speed, angular_momentum)
    return Layout(obs_dim, fields, {f.__name__: f for f in every})


def planar(model: Model) -> Planar:
    """The constants of a model whose bodies all turn about the y axis, root first."""
    bodies = range(1, model.nbody)
    count = model.nbody - 1
    pitch_of = np.zeros((count, model.njnt))
    origin = np.zeros((count, count, 2))  # C_ik for the body frames' origins
    for body in bodies:
        i, parent = body - 1, model.body_parentid[body] - 1
        hinges = [j for j in range(model.njnt) if model.jnt_bodyid[j] == body and _is_hinge(model, j)]
        if len(hinges) != 1 or not np.array_equal(model.body_quat[body], [1.0, 0.0, 0.0, 0.0]):
            raise ValueError(f"body {body} of this model is not one hinge about y in an unrotated frame")
        anchor = model.jnt_pos[hinges[0]][[0, 2]]
        if parent >= 0:
            pitch_of[i], origin[i] = pitch_of[parent], origin[parent]
            # Up to the joint we move with the parent, from the joint to our own origin with ourselves.
            origin[i, parent] += model.body_pos[body][[0, 2]] + anchor
        origin[i, i] -= anchor
        pitch_of[i, hinges[0]] += model.jnt_axis[hinges[0]][1]
    offsets = origin.copy()
    offsets[range(count), range(count)] += model.body_ipos[1:][:, [0, 2]]
    mass = model.body_mass[1:].copy()
    centre = np.einsum("i,ikc->kc", mass / mass.sum(), offsets)
    inertia = np.array([_inertia_about_y(model, body) for body in bodies])
    return Planar(*map(torch.from_numpy, (pitch_of, centre, offsets - centre, mass, inertia)))


def _is_hinge(model: Model, joint: int) -> bool:
    return bool(model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE)


def _inertia_about_y(model: Model, body: int) -> float:
    """Entry (y, y) of the body's inertia, which MuJoCo stores diagonal in a rotated frame."""
    rotation: Array = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.body_iquat[body])
    y_row = rotation.reshape(3, 3)[1]
    return float((y_row**2 * model.body_inertia[body]).sum())
