r"""How HumEnv scores goal reaching and motion tracking, for batches of episodes.

All distances are between poses, the first 214 columns of an observation (heights, positions and rotations,
no velocities). With d_t the distance at step t, a bound of 2 and a margin of 2:

    distance    mean_t d_t
    proximity   mean_t p(d_t),  p = 1 up to the bound, then linear, 0 from bound + margin on
    success     goal: d_t ≤ 2 at any step;  tracking: at every step
    emd         tracking: exact optimal transport between the visited poses and those of the motion
"""

import math

import numpy as np
import torch
from torch import Tensor

from zol.common.errors import DataError
from zol.common.extras import require
from zol.tasks.humenv import POSE

BOUND, MARGIN = 2.0, 2.0
LARGEST = 8192  # rows of an assignment problem; it takes time with the cube of that


def pose_distance(obs: Tensor, target: Tensor) -> Tensor:
    """d between observations ``[..., D]`` and targets ``[..., D]``, ``[...]``."""
    return (obs[..., :POSE] - target[..., :POSE]).norm(dim=-1)


def proximity(distance: Tensor) -> Tensor:
    """How near a distance d is, p(d) ∈ [0, 1], ``[...]``."""
    return ((BOUND + MARGIN - distance) / MARGIN).clamp(0.0, 1.0)


def goal_scores(visited: Tensor, goal: Tensor) -> dict[str, Tensor]:
    """Scores ``[...]`` of episodes ``[..., T, D]`` (states after each action) that wanted a goal ``[D]``."""
    d = pose_distance(visited, goal)
    return {
        "success": (d <= BOUND).any(-1).to(d.dtype),
        "proximity": proximity(d).mean(-1),
        "distance": d.mean(-1),
    }


def tracking_scores(visited: Tensor, motion: Tensor) -> dict[str, Tensor]:
    """Scores of one episode ``[T, D]`` that followed the frames ``[T, D]``, which begin after its start."""
    if visited.shape != motion.shape or visited.ndim != 2:
        raise DataError(
            f"an episode of shape {tuple(visited.shape)} cannot be compared with frames of shape "
            f"{tuple(motion.shape)}: both are [steps, columns]"
        )
    d = pose_distance(visited, motion)
    joints = (visited[:, 1:70] - motion[:, 1:70]).reshape(len(d), 23, 3).norm(dim=-1)  # [T, 23] metres
    return {
        "success": (d <= BOUND).all(-1).to(d.dtype),
        "proximity": proximity(d).mean(-1),
        "distance": d.mean(-1),
        "emd": earth_movers_distance(visited[:, :POSE], motion[:, :POSE]),
        "success_every_joint": (joints <= 0.5).all().to(d.dtype),
        "success_mean_joint": (joints.mean(-1) <= 0.5).all().to(d.dtype),
    }


def earth_movers_distance(x: Tensor, y: Tensor) -> Tensor:
    """Optimal transport between rows ``[n, k]`` and ``[m, k]`` of equal weight, Euclidean cost; exact.

    With n = m it is an assignment. Otherwise rows are repeated until both sides have lcm(n, m).
    """
    optimize = require("scipy.optimize", "humenv", "The earth mover's distance")
    rows = math.lcm(len(x), len(y))
    if rows == 0 or rows > LARGEST:
        raise DataError(
            f"the transport between {len(x)} and {len(y)} poses needs {rows} rows, at most {LARGEST}"
        )
    plain = "donot_use_mm_for_euclid_dist"  # the fast way loses half the digits of small distances
    cost = torch.cdist(x.double(), y.double(), compute_mode=plain).cpu().numpy()
    cost = np.repeat(np.repeat(cost, rows // len(x), axis=0), rows // len(y), axis=1)
    pairs = optimize.linear_sum_assignment(cost)
    return torch.tensor(cost[pairs].mean(), dtype=x.dtype)
