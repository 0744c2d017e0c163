"""Rotations of many bodies at once: quaternions (w, x, y, z) in arrays ``[..., 4]``.

Sums are taken in the order of the package and of MuJoCo's own functions, so that results agree to the last
bit.
"""

import numpy as np

from zol.worlds.dmc.domain import Array

TINY = 1e-15  # below it MuJoCo calls a vector zero
STRAIGHT_DOWN = np.array([0.0, 1.0, 0.0, 0.0])  # half a turn about x


def multiply(a: Array, b: Array) -> Array:
    """The rotation b, then a."""
    w0, x0, y0, z0 = np.moveaxis(a, -1, 0)
    w1, x1, y1, z1 = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            -x0 * x1 - y0 * y1 - z0 * z1 + w0 * w1,
            x0 * w1 + y0 * z1 - z0 * y1 + w0 * x1,
            -x0 * z1 + y0 * w1 + z0 * x1 + w0 * y1,
            x0 * y1 - y0 * x1 + z0 * w1 + w0 * z1,
        ],
        axis=-1,
    )


def between(wanted: Array, now: Array) -> Array:
    """The rotation from ``now`` to ``wanted``: their quotient, summed in the order of MuJoCo's product."""
    (w0, x0, y0, z0), (w1, x1, y1, z1) = np.moveaxis(wanted, -1, 0), np.moveaxis(inverse(now), -1, 0)
    return np.stack(
        [
            w0 * w1 - x0 * x1 - y0 * y1 - z0 * z1,
            w0 * x1 + x0 * w1 + y0 * z1 - z0 * y1,
            w0 * y1 - x0 * z1 + y0 * w1 + z0 * x1,
            w0 * z1 + x0 * y1 - y0 * x1 + z0 * w1,
        ],
        axis=-1,
    )


def inverse(q: Array) -> Array:
    """The opposite rotation, of unit quaternions."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def rotate(q: Array, vector: Array) -> Array:
    """Vectors ``[..., 3]`` turned by q."""
    padded = np.concatenate([np.zeros((*vector.shape[:-1], 1)), vector], axis=-1)
    return multiply(multiply(q, padded), inverse(q))[..., 1:]


def about_z(angle: Array) -> Array:
    """Turns about the vertical axis by angles ``[...]``, ``[..., 4]``."""
    small = angle * angle < 1e-10
    size = np.where(small, 1.0, np.sqrt(angle * angle))
    square = angle * angle
    real = np.where(small, 1.0 - square / 8.0 + square * square / 384.0, np.cos(0.5 * size))
    along = np.where(small, 0.5 - square / 48.0 + square * square / 3840.0, np.sin(0.5 * size) / size)
    zero = np.zeros_like(angle)
    return np.stack([real, along * zero, along * zero, along * angle], axis=-1)


def yaw(q: Array) -> Array:
    """Angle about the vertical axis, ``[...]``."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    angle: Array = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y**2 + z**2))
    return angle


def from_matrix(matrix: Array) -> Array:
    """Quaternions of rotation matrices ``[..., 9]``, through the largest of the four components."""
    m = np.moveaxis(matrix, -1, 0)
    with np.errstate(invalid="ignore"):  # roots of the branches that are not taken
        largest = [
            0.5 * np.sqrt(1 + m[0] + m[4] + m[8]),
            0.5 * np.sqrt(1 + m[0] - m[4] - m[8]),
            0.5 * np.sqrt(1 - m[0] + m[4] - m[8]),
            0.5 * np.sqrt(1 - m[0] - m[4] + m[8]),
        ]
    a, b, c = m[7] - m[5], m[2] - m[6], m[3] - m[1]
    d, e, f = m[1] + m[3], m[2] + m[6], m[5] + m[7]
    with np.errstate(invalid="ignore", divide="ignore"):
        branches = [
            np.stack([largest[0], 0.25 * a / largest[0], 0.25 * b / largest[0], 0.25 * c / largest[0]], -1),
            np.stack([0.25 * a / largest[1], largest[1], 0.25 * d / largest[1], 0.25 * e / largest[1]], -1),
            np.stack([0.25 * b / largest[2], 0.25 * d / largest[2], largest[2], 0.25 * f / largest[2]], -1),
            np.stack([0.25 * c / largest[3], 0.25 * e / largest[3], 0.25 * f / largest[3], largest[3]], -1),
        ]
    which = np.select(
        [m[0] + m[4] + m[8] > 0, (m[0] > m[4]) & (m[0] > m[8]), m[4] > m[8]], [0, 1, 2], default=3
    )
    q: Array = np.take_along_axis(np.stack(branches), which[None, ..., None], axis=0)[0]
    norm = np.sqrt(q[..., 0] ** 2 + q[..., 1] ** 2 + q[..., 2] ** 2 + q[..., 3] ** 2)
    off = np.abs(norm - 1) > TINY
    return np.where(off[..., None], q * (1 / norm)[..., None], q)


def velocity(q: Array) -> Array:
    """The angular velocity ``[..., 3]`` that turns by q within one second, the shorter way round."""
    axis = q[..., 1:]
    norm = np.sqrt(axis[..., 0] ** 2 + axis[..., 1] ** 2 + axis[..., 2] ** 2)
    none = norm < TINY
    unit = np.where(
        none[..., None], np.array([1.0, 0.0, 0.0]), axis * (1 / np.where(none, 1.0, norm))[..., None]
    )
    speed = 2 * np.arctan2(norm, q[..., 0])
    speed = np.where(speed > np.pi, speed - 2 * np.pi, speed)
    return unit * speed[..., None]
