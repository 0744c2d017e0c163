"""Rewards of one's own for the walker, to be named on the command line as FILE.py:NAME.

zol adapt walker --reward examples/rewards.py:crouch --episodes 10 --video films
"""

from torch import Tensor

from zol.fields import States
from zol.tasks import Task, tolerance
from zol.worlds import make


def backwards(s: States) -> Tensor:
    """Upright, moving backward at 1 m/s or more."""
    return (-s["speed"]).clamp(0, 1) * (1 + s["torso_upright"]) / 2


def crouch(s: States) -> Tensor:
    """Upright, with the torso at 0.8 m or lower."""
    return tolerance(-s["torso_height"], -0.8, margin=0.4) * (1 + s["torso_upright"]) / 2


# Tasks add, scale and mask: here the walker's own, with a price on fast joints.
stand = make("walker").tasks["stand"]
quietly = stand + 0.002 * Task("quiet", lambda s: -s["joint_velocities"].square().mean(-1))
