r"""The 45 standard reward tasks of HumEnv as array formulas, for any number of states at once.

A task reads four things: where the 24 bodies are (``xpos``), how they are turned (``xmat``), two
velocities (of the centre of mass above the chest, and the pelvis gyro) and the controls. None needs a
simulator, so 100,000 samples × 45 tasks take about a second. Notation of the formulas:

    h(b)   height of body b              up    chest xmat[2,1], 1 when upright
    C      subtree velocity of the chest G     gyro of the pelvis
    U      tol(up; [0.9, ∞), 1.9)        ctl   (4 + mean(1 − a²)) / 5
    still  mean tol(C_i; 0, 0.5), gaussian, over the first 2 or all 3 components

``tol(x; bounds, margin)`` is :func:`zol.tasks.tolerance`, linear and 0 at the margin unless it says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from zol.common.errors import DataError, unknown_name
from zol.fields import Field, Layout
from zol.tasks.tolerance import tolerance

BODIES = (
    *("Pelvis", "L_Hip", "L_Knee", "L_Ankle", "L_Toe", "R_Hip", "R_Knee", "R_Ankle", "R_Toe"),
    *("Torso", "Spine", "Chest", "Neck", "Head"),
    *("L_Thorax", "L_Shoulder", "L_Elbow", "L_Wrist", "L_Hand"),
    *("R_Thorax", "R_Shoulder", "R_Elbow", "R_Wrist", "R_Hand"),
)
INDEX = {name: index for index, name in enumerate(BODIES)}
ACTIONS = 69
POSE = 214  # the columns of an observation that describe the pose, without velocities

LAYOUT = Layout(
    358,
    (
        Field("root_height", 0, 1, "m", "height of the pelvis"),
        Field("body_positions", 1, 69, "m", "of 23 bodies relative to the pelvis, in the heading frame"),
        Field("body_rotations", 70, 144, "", "of 24 bodies: two columns of the rotation matrix each"),
        Field("body_velocities", 214, 72, "m/s", "of 24 bodies, in the heading frame"),
        Field("body_angular_velocities", 286, 72, "rad/s", "of 24 bodies, in the heading frame"),
    ),
)


@dataclass(frozen=True)
class Body:
    """What the rewards read of a batch of states; leading dimensions are free."""

    xpos: Tensor  # [..., 24, 3] world positions
    xmat: Tensor  # [..., 24, 3, 3] world rotations
    velocity: Tensor  # [..., 3] linear velocity of the chest's subtree
    gyro: Tensor  # [..., 3] of the pelvis
    ctrl: Tensor  # [..., 69]

    # Terms that many tasks share are computed once per batch; columns are made contiguous first, because
    # reading every 72nd number of a large array costs more than the arithmetic.
    @cached_property
    def _heights(self) -> Tensor:
        return self.xpos[..., 2].movedim(-1, 0).contiguous()  # [24, ...]

    @cached_property
    def _verticals(self) -> Tensor:
        return self.xmat[..., 2, :].movedim((-2, -1), (0, 1)).contiguous()  # [24, 3, ...]

    @cached_property
    def control(self) -> Tensor:
        """How small the controls are, the factor ctl of the formulas, ``[...]``."""
        return (4.0 + tolerance(self.ctrl, 0, 0, margin=1, shape="quadratic", at_margin=0.0).mean(-1)) / 5.0

    @cached_property
    def upright(self) -> Tensor:
        """How upright the chest is, the factor U of the formulas, ``[...]``."""
        return _linear(self.vertical("Chest", 1), 0.9, margin=1.9)

    @cached_property
    def calm(self) -> Tensor:
        """The three terms of "still", ``[..., 3]``."""
        return tolerance(self.velocity, 0, 0, margin=0.5)

    def height(self, name: str) -> Tensor:
        """The height h(b) of a body, ``[...]``."""
        return self._heights[INDEX[name]]

    def vertical(self, name: str, axis: int) -> Tensor:
        """How far the body's axis points up, xmat[2, axis] ∈ [−1, 1], ``[...]``."""
        return self._verticals[INDEX[name], axis]

    def yaw(self, name: str) -> Tensor:
        """Angle of the body's x axis about the vertical, ``[...]``."""
        m = self.xmat[..., INDEX[name], :, :]
        return torch.atan2(m[..., 1, 0], m[..., 0, 0])


Formula = Callable[[Body], Tensor]


def _linear(x: Tensor, low: float, high: float = math.inf, *, margin: float, at: float = 0.0) -> Tensor:
    return tolerance(x, low, high, margin=margin, shape="linear", at_margin=at)


def _standing(b: Body) -> Tensor:
    return _linear(b.height("Head"), 1.4, margin=1.4, at=0.01) * b.upright


def _crouching(b: Body) -> Tensor:
    return _linear(b.height("Pelvis"), 0.3, 0.6, margin=0.3, at=0.01) * b.upright


def _still(b: Body, components: int = 3) -> Tensor:
    return b.calm[..., :components].mean(-1)


def _moving(b: Body, speed: float, degrees: float) -> Tensor:
    """The wanted speed, (5 tol + 1)/6, times the wanted direction relative to the chest, (1 + cos)/2."""
    plane = b.velocity[..., :2]
    norm = plane.norm(dim=-1)
    fast = tolerance(norm, 0.9 * speed, 1.1 * speed, margin=speed / 2, at_margin=0.5)
    angle = math.radians(degrees - 90) + b.yaw("Chest")  # the robot's front is its left side
    cosine = (plane[..., 0] * angle.cos() + plane[..., 1] * angle.sin()) / (norm + 1e-6)
    direction = torch.where(norm <= 1e-8, torch.ones_like(norm), (cosine + 1) / 2)
    return (5 * fast + 1) / 6 * direction


def move(degrees: float, speed: float, *, low: bool = False) -> Formula:
    """Walk or run in a direction relative to the chest, or stand; ``low``: with bent knees."""

    def reward(b: Body) -> Tensor:
        motion = _still(b, 2) if speed == 0 else _moving(b, speed, degrees)
        return b.control * (_crouching(b) if low else _standing(b)) * motion

    return reward


def jump(height: float) -> Formula:
    """Head at ``height``, upright, going up at 5 m/s."""

    def reward(b: Body) -> Tensor:
        high = _linear(b.height("Head"), height, height + 0.1, margin=height, at=0.01)
        return high * b.upright * _linear(b.velocity[..., 2], 5, margin=5)

    return reward


def headstand(b: Body) -> Tensor:
    """Pelvis and feet high, upside down, still."""
    high = torch.ones_like(b.height("Head"))
    for name in ("Pelvis", "L_Ankle", "R_Ankle"):
        high = high * _linear(b.height(name), 0.95, margin=0.475, at=0.01)
    inverted = _linear(b.vertical("Pelvis", 1), -1, -0.9, margin=0.9)
    steady = _linear(b.gyro, -1, 1, margin=4, at=0.1).mean(-1)
    free = _linear(b.height("Head"), 0.3, margin=0.1, at=0.01)
    return high * b.control * inverted * _still(b) * steady * free


def rotate(axis: Literal["x", "y", "z"], speed: float, height: float) -> Formula:
    """Spin about an axis of the pelvis at |speed| rad/s, pelvis at ``height``."""
    index = "xyz".index(axis)
    bounds = (0.9, math.inf) if axis == "y" else (-0.1, 0.1)
    target = abs(speed)

    def reward(b: Body) -> Tensor:
        spin = _linear(math.copysign(1, speed) * b.gyro[..., index], target, target + 5, margin=target / 2)
        high = _linear(b.height("Pelvis"), height, margin=height, at=0.01)
        return spin * high * b.control * _linear(b.vertical("Pelvis", index), *bounds, margin=0.9)

    return reward


HANDS = {"l": (0.0, 0.8, 0.2), "m": (1.4, 1.6, 0.1), "h": (1.8, math.inf, 0.2)}


def raise_arms(left: str, right: str) -> Formula:
    """Stand still with each hand low, in the middle or high."""

    def hand(b: Body, name: str, level: str) -> Tensor:
        low, high, margin = HANDS[level]
        return (4 * _linear(b.height(name), low, high, margin=margin) + 1) / 5

    def reward(b: Body) -> Tensor:
        return b.control * _standing(b) * _still(b) * hand(b, "L_Hand", left) * hand(b, "R_Hand", right)

    return reward


def sit(knee_low: float, knee_high: float, knee_margin: float) -> Formula:
    """Sit on the ground (knees down) or crouch (knees up)."""

    def reward(b: Body) -> Tensor:
        posture = _linear(b.height("Head"), 0.58, 0.78, margin=0.1, at=0.01)
        posture = posture * _linear(b.vertical("Chest", 1), 0.85, margin=1.9)
        down = _linear(b.height("Pelvis"), 0, 0.15, margin=0.7)
        for name in ("L_Knee", "R_Knee"):
            down = down * _linear(b.height(name), knee_low, knee_high, margin=knee_margin)
        return b.control * posture * _still(b) * down

    return reward


def lie(side: int) -> Formula:
    """Lie flat, face up (+1) or down (−1)."""

    def reward(b: Body) -> Tensor:
        flat = _linear(b.vertical("Chest", 1), 0, 0.2, margin=1)
        for name in ("Pelvis", "Head", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle"):
            flat = flat * _linear(b.height(name), 0, 0.2, margin=0.7)
        for name in ("Head", "Torso", "Chest", "Pelvis", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle"):
            flat = flat * _linear(side * b.vertical(name, 2), 0.95, margin=1.9)
        return b.control * _still(b) * flat

    return reward


def split(distance: float) -> Formula:
    """Ankles ``distance`` apart, pelvis on the ground."""

    def reward(b: Body) -> Tensor:
        apart = (b.xpos[..., INDEX["L_Ankle"], :] - b.xpos[..., INDEX["R_Ankle"], :]).norm(dim=-1)
        legs = _linear(apart, distance, margin=0.5) * _linear(b.height("Pelvis"), 0, 0.2, margin=0.5)
        return _linear(b.height("Head"), 0.5, margin=0.3) * legs * _still(b) * b.control

    return reward


def crawl(height: float, speed: float, side: int) -> Formula:
    """On all fours, face down (−1) or up (+1), spine at ``height``, still or moving forwards."""

    def reward(b: Body) -> Tensor:
        turned = torch.ones_like(b.height("Head"))
        level, aligned = turned, turned
        for name in ("Spine", "Torso", "Chest", "Pelvis", "Head", *_LEGS):
            turned = turned * _linear(side * b.vertical(name, 2), 0.5, margin=0.5)
        for name in ("Spine", "Torso", "Chest", "Pelvis"):
            level = level * _linear(b.height(name), height, height + 0.2, margin=0.1, at=0.01)
            aligned = aligned * _linear(b.yaw(name) - b.yaw("Chest"), -0.1, 0.1, margin=0.5)
        level = level * _linear(b.height("Head"), 0.3, 1, margin=0.1, at=0.01)
        steady = _linear(b.gyro.abs(), 0, 2.5, margin=2).mean(-1)
        posture = turned * (1 + level) / 2 * (1 + steady) / 2 * (1 + aligned) / 2
        return posture * (_still(b, 2) if speed == 0 else _moving(b, speed, 0))

    return reward


_LEGS = ("L_Knee", "R_Knee", "L_Hip", "R_Hip", "L_Ankle", "R_Ankle")
_ANGLES = (0, -90, 90, 180)

REWARDS: dict[str, Formula] = {
    "move-ego-0-0": move(0, 0),
    "move-ego-low-0-0": move(0, 0, low=True),
    "headstand": headstand,
    **{f"move-ego-{angle}-{speed}": move(angle, speed) for angle in _ANGLES for speed in (2, 4)},
    **{f"move-ego-low-{angle}-2": move(angle, 2, low=True) for angle in _ANGLES},
    "jump-2": jump(2),
    "rotate-x--5-0.8": rotate("x", -5, 0.8),
    "rotate-x-5-0.8": rotate("x", 5, 0.8),
    "rotate-y--5-0.8": rotate("y", -5, 0.8),
    "rotate-y-5-0.8": rotate("y", 5, 0.8),
    "rotate-z--5-0.8": rotate("z", -5, 0.8),
    "rotate-z-5-0.8": rotate("z", 5, 0.8),
    **{f"raisearms-{left}-{right}": raise_arms(left, right) for left in "lmh" for right in "lmh"},
    "crouch-0": sit(0.2, 1.0, 0.1),
    "sitonground": sit(0.0, 0.1, 0.7),
    "lieonground-up": lie(1),
    "lieonground-down": lie(-1),
    "split-0.5": split(0.5),
    "split-1": split(1),
    **{
        f"crawl-{height}-{speed}-{side}": crawl(height, speed, 1 if side == "u" else -1)
        for side in "ud"
        for height in (0.4, 0.5)
        for speed in (0, 2)
    },
}


def rewards(body: Body, names: list[str] | None = None) -> Tensor:
    """Rewards ``[T, ...]`` of the named tasks (all 45 unless told) for a batch of states."""
    wanted = list(REWARDS) if names is None else names
    for name in wanted:
        if name not in REWARDS:
            raise DataError(unknown_name("HumEnv task", name, REWARDS))
    return torch.stack([REWARDS[name](body) for name in wanted])
