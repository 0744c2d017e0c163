"""Where the fingers of the gripper are, and buttons in their boxes, so that they cannot touch each other.

MuJoCo looks for contacts between the links of the gripper at every physics step, and finds none: its only
parts that ever meet are the pads. This module proves for which joint angles that is so, link by link.

All joints of a finger turn about one axis, so that links are apart where their shadows along this axis are.
Two shadows are apart where a line passes between them, which the sum of their supports tells. Angles are
taken on a lattice; between its points, a link moves by no more than its reach times half a spacing. The
fingers are half-turn images of each other: everything but the pads stays on its side of the middle plane by
more than ``GAP``, and pads do not cross the plane by more than that.
"""

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from zol.worlds.dmc.domain import Array, Model

LATTICE = 2048  # points around a circle
SPACING = 2 * np.pi / LATTICE
TOLERANCE = 1e-5  # metres, against rounding and MuJoCo's own tolerance
GAP = 1e-3  # metres
DIRECTIONS = range(0, LATTICE, LATTICE // 32)  # in which a line between two shadows is looked for
SIDES = ("right", "left")
HAND = "ur5e/robotiq/"
# Angles of links against the base of the gripper, in radians. Outside of these, nothing is claimed.
DRIVER, COUPLER, SPRING, FOLLOWER = (-0.05, 0.85), (-0.35, 0.9), (-0.4, 0.85), (-0.1, 1.1)
SLIDE = (-0.0265, 0.3)  # metres, where buttons are looked at
SLIDE_SPACING = 0.002
Angles = NDArray[np.int64]  # as numbers of lattice points
Pairs = tuple[tuple[str, str], ...]


class NotStudied(Exception):
    """A gripper to which what is proved here does not apply."""


@dataclass(frozen=True)
class Link:
    """Shadows of a link of both fingers: complex numbers, metres along y and z of the gripper's base."""

    pivot: complex  # where the finger hangs on the base
    arm: complex  # from there to the link's own joint, turning with the link before it
    reach: float  # from the link's joint to its farthest point
    support: Array  # how far the link extends in direction 0, per lattice angle of the link

    def extends(self, direction: int, before: Angles, own: Angles) -> Array:
        """Farthest extension in a direction, a number of the lattice, at angles of the link."""
        turn = np.exp(1j * SPACING * (before - direction))
        hangs = (self.pivot * np.exp(-1j * SPACING * direction)).real
        extension: Array = hangs + (self.arm * turn).real + self.support[(own - direction) % LATTICE]
        return extension

    def inner(self, before: Angles, own: Angles) -> Array:
        """Distance from the middle plane, at the least, within a cell around lattice angles."""
        return -self.extends(LATTICE // 2, before, own) - self.slack

    @property
    def slack(self) -> float:
        """How far the link extends beyond that within half a spacing of both its angles."""
        return 0.5 * SPACING * (abs(self.arm) + self.reach)


class Fingers:
    """Tables of joint angles at which links are apart."""

    pairs: Pairs = (
        *((HAND + "base", f"{HAND}{side}_{link}") for side in SIDES for link in ("coupler", "follower")),
        *((f"{HAND}{side}_driver", f"{HAND}{side}_spring_link") for side in SIDES),
        *(
            (f"{HAND}right_{one}", f"{HAND}left_{other}")
            for one in ("driver", "coupler", "spring_link", "follower", "pad")
            for other in ("driver", "coupler", "spring_link", "follower", "pad")
            if (one, other) != ("pad", "pad")
        ),
    )

    def __init__(self, model: Model) -> None:
        names = ("driver", "coupler", "spring_link", "follower")
        joints = [[int(model.joint(f"{HAND}{side}_{name}_joint").id) for name in names] for side in SIDES]
        self.columns = model.jnt_qposadr[joints]  # [2 sides, 4 joints]
        base = _link(model, ("base", "base"))
        driver, coupler = (_link(model, _both(name)) for name in names[:2])
        spring, follower = (_link(model, _both(name)) for name in names[2:])
        pads = _link(model, _both("pad"), joint=_both("follower"))
        d, c, s, f = (_lattice(*limits) for limits in (DRIVER, COUPLER, SPRING, FOLLOWER))
        row, none = d[:, None], np.zeros(1, np.int64)
        near = _apart(coupler, (row, c), base, (none, none)) & (coupler.inner(row, c) > GAP + TOLERANCE)
        near &= driver.inner(none, row) > GAP + TOLERANCE
        beside = _apart(driver, (none, row), spring, (none, s))
        row = s[:, None]
        far = _apart(follower, (row, f), base, (none, none)) & (follower.inner(row, f) > GAP + TOLERANCE)
        far &= (spring.inner(none, row) > GAP + TOLERANCE) & (pads.inner(row, f) > TOLERANCE - GAP)
        self.tables = (_closed(near), _closed(beside), _closed(far))
        self.begins = (d[0], c[0], s[0], f[0])

    def apart(self, qpos: Array) -> NDArray[np.bool_]:
        """Whether all ``pairs`` are apart, per state ``[..., nq]``; False for NaN."""
        near, beside, far = self.tables
        good: NDArray[np.bool_] = np.ones(qpos.shape[:-1], np.bool_)
        for columns in self.columns:
            driver, coupler, spring, follower = (qpos[..., k] for k in columns)
            angles = (driver, driver + coupler, spring, spring + follower)
            sizes = (*near.shape, *far.shape)
            d, c, s, f = (
                # fmin and fmax send NaN to the border, too.
                np.fmax(np.fmin(np.rint(angle / SPACING) - begin, size - 1), 0).astype(np.int64)
                for angle, begin, size in zip(angles, self.begins, sizes, strict=True)
            )
            good &= near[d, c] & beside[d, s] & far[s, f]
        return good


class Buttons:
    """How far buttons can slide without touching their boxes: from ``low`` to ``high``, in metres."""

    def __init__(self, model: Model) -> None:
        joints = [j for j in range(model.njnt) if "buttonbox_joint" in model.joint(j).name]
        self.columns = model.jnt_qposadr[joints]
        bodies = [int(model.jnt_bodyid[joint]) for joint in joints]
        pairs = [(int(model.body_parentid[body]), body) for body in bodies]
        self.pairs: Pairs = tuple((model.body(box).name, model.body(body).name) for box, body in pairs)
        self.low = self.high = SLIDE[0]
        data, ends, solid = mujoco.MjData(model), np.zeros(6), model.geom_contype > 0
        touching = [
            (one, other)
            for box, body in pairs
            for one in np.flatnonzero(solid & (model.geom_bodyid == box))
            for other in np.flatnonzero(solid & (model.geom_bodyid == body))
        ]
        # A slide by some distance changes distances by no more than that.
        for middle in np.arange(SLIDE[0] + SLIDE_SPACING / 2, SLIDE[1], SLIDE_SPACING):
            data.qpos[self.columns] = middle
            mujoco.mj_kinematics(model, data)
            for one, other in touching:
                if mujoco.mj_geomDistance(model, data, one, other, 1.0, ends) < SLIDE_SPACING / 2 + TOLERANCE:
                    return
            self.high = float(middle + SLIDE_SPACING / 2)

    def apart(self, qpos: Array) -> NDArray[np.bool_]:
        """Whether all ``pairs`` are apart, per state ``[..., nq]``; False for NaN."""
        place = qpos[..., self.columns]
        good: NDArray[np.bool_] = np.all((place > self.low) & (place < self.high), axis=-1)
        return good


def _link(model: Model, names: tuple[str, str], joint: tuple[str, str] | None = None) -> Link:
    """A link, or geoms that are fixed to one; the same of both fingers, in one outline."""
    found = [
        _outline(model, model.body(HAND + name).id, model.body(HAND + turning).id)
        for name, turning in zip(names, joint or names, strict=True)
    ]
    (pivot, arm, right), (other_pivot, other_arm, left) = found
    if abs(pivot - other_pivot) > TOLERANCE / 10 or abs(arm - other_arm) > TOLERANCE / 10:
        raise NotStudied("the fingers of this gripper are not images of each other")
    points, angles = np.concatenate([right, left]), range(LATTICE)
    if names[0] == "base":  # which does not turn; the left finger sees it from behind
        points, angles = np.concatenate([right, -right.conj()]), DIRECTIONS
    support = np.full(LATTICE, np.nan)
    for k in angles:
        support[k] = (points * np.exp(1j * SPACING * k)).real.max()
    return Link(pivot, arm, float(np.abs(points).max()), support)


def _outline(model: Model, body: int, turning: int) -> tuple[complex, complex, NDArray[np.complex128]]:
    """Pivot and arm of the link ``turning``, and corners of a body that is fixed to it, around its joint."""
    base = model.body(HAND + "base").id
    points = _corners(model, body)
    while body != turning:
        points = points @ _matrix(model.body_quat[body]).T + model.body_pos[body]
        body = int(model.body_parentid[body])
    if body == base:
        return 0j, 0j, _shadow(points)
    links = [body]
    while model.body_parentid[links[0]] != base:
        links.insert(0, int(model.body_parentid[links[0]]))
    joints = [int(model.body_jntadr[link]) for link in links]
    turn = _matrix(model.body_quat[links[0]])
    if (
        len(links) > 2
        or not np.array_equal(np.abs(turn), np.eye(3))
        or turn[2, 2] < 0
        or (model.body_quat[links[1:]] != [1, 0, 0, 0]).any()
        or (model.jnt_axis[joints] != [1, 0, 0]).any()
        or model.qpos0[model.jnt_qposadr[joints]].any()
    ):
        raise NotStudied("the fingers of this gripper do not move in a plane")
    pivot = turn.T @ model.body_pos[links[0]] + model.jnt_pos[joints[0]]
    arm = np.zeros(3)
    if len(links) == 2:
        arm = model.body_pos[links[1]] + model.jnt_pos[joints[1]] - model.jnt_pos[joints[0]]
    return _shadow(pivot).item(), _shadow(arm).item(), _shadow(points - model.jnt_pos[joints[-1]])


def _corners(model: Model, body: int) -> Array:
    """Corners ``[n, 3]`` of the solid meshes and boxes of a body, in its frame."""
    parts = []
    for geom in np.flatnonzero((model.geom_bodyid == body) & (model.geom_contype > 0)):
        mesh = int(model.geom_dataid[geom])
        if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_MESH:
            begin = int(model.mesh_vertadr[mesh])
            points = model.mesh_vert[begin : begin + int(model.mesh_vertnum[mesh])].astype(np.float64)
        elif model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX:
            points = model.geom_size[geom] * (2.0 * np.indices((2, 2, 2)).reshape(3, 8).T - 1)
        else:
            raise NotStudied("the gripper has a part that is neither a mesh nor a box")
        parts.append(points @ _matrix(model.geom_quat[geom]).T + model.geom_pos[geom])
    return np.concatenate(parts)


def _apart(
    one: Link, at: tuple[Angles, Angles], other: Link, there: tuple[Angles, Angles]
) -> NDArray[np.bool_]:
    """Where a line passes between two links, anywhere within a cell around lattice angles."""
    gap = [-one.extends(k, *at) - other.extends(k + LATTICE // 2, *there) for k in DIRECTIONS]
    apart: NDArray[np.bool_] = np.max(gap, axis=0) > one.slack + other.slack + TOLERANCE
    return apart


def _closed(table: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The table without its border, which stands for all angles outside of it."""
    table[[0, -1]] = table[:, [0, -1]] = False
    return table


def _lattice(low: float, high: float) -> Angles:
    return np.arange(round(low / SPACING), round(high / SPACING) + 1)


def _both(name: str) -> tuple[str, str]:
    return f"right_{name}", f"left_{name}"


def _shadow(points: Array) -> NDArray[np.complex128]:
    """Points ``[..., 3]`` as complex numbers y + iz."""
    shadow: NDArray[np.complex128] = points[..., 1] + 1j * points[..., 2]
    return shadow


def _matrix(quat: Array) -> Array:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)
