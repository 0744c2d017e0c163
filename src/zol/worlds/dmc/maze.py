"""Point mass in a maze of four rooms: 4 observations, 2 motors, one physics step of 20 ms per action.

Two rewards for "reach a corner" are in circulation, which differ only in how far away they can be felt:
the Gaussian flank around the target has a margin of 0.015 m in ExORL and the code that grew from it, and
of 0.09 m in td_jepa. Here ``reach_top_left`` has the wide margin, ``reach_top_left_exorl`` the narrow one.
The wide one is the default because the paper whose 16 tasks this library reproduces takes td_jepa's task
list (walker spin exists nowhere else), and its scores fit the wide margin better: it reports 831 for bottom
left, where a scripted controller earns 831 with the wide margin and 810 with the narrow one.

The other tasks are td_jepa's too. They ask for a way of moving instead of a place: laps through the corridors
along the outer edges, or around a diamond.
"""

import math
from dataclasses import replace
from importlib.resources import files

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task, tolerance
from zol.worlds.dmc.domain import Array, Batch, Domain, Model, uniform
from zol.worlds.dmc.world import ControlWorld

TARGET_RADIUS = 0.015  # metres; inside, the reward is full
WIDE_MARGIN, NARROW_MARGIN = 0.09, 0.015  # td_jepa's and ExORL's
CORNERS = {
    "top_left": (-0.15, 0.15),
    "top_right": (0.15, 0.15),
    "bottom_left": (-0.15, -0.15),
    "bottom_right": (0.15, -0.15),
}

FIELDS = (
    Field("position", 0, 2, "m", "x to the right and y to the top, both within ±0.29"),
    Field("velocity", 2, 2, "m/s", "velocity in x and y, at most 0.1 each"),
)


def world() -> ControlWorld:
    """The maze as a batched world."""
    xml = files("zol.worlds.dmc").joinpath("maze.xml").read_text(encoding="utf-8")
    domain = Domain(
        name="point_mass_maze",
        model=mujoco.MjModel.from_xml_string(xml),
        substeps=1,
        layout=Layout(4, FIELDS),
        tasks={task.name: task for task in TASKS},
        discount=0.99,
        starts=starts,
        observe=observe,
        reads=(),
        stage=mujoco.mjtStage.mjSTAGE_NONE,
        camera=0,
    )
    return ControlWorld(domain)


def observe(batch: Batch) -> Array:
    """Position and velocity."""
    return np.concatenate([batch.qpos, batch.qvel], axis=1)


def starts(model: Model, n: int, generator: torch.Generator) -> Array:
    """At rest, anywhere in the outer part of the top left room."""
    position = uniform(np.array([-0.29, 0.15]), np.array([-0.15, 0.29]), (n, 2), generator)
    return np.concatenate([position, np.zeros((n, 2))], axis=1)


def _reach(corner: str, margin: float) -> Task:
    """near · (4 + mean(1 − a²)) / 5: at the target, and gently."""
    place = torch.tensor(CORNERS[corner], dtype=torch.float64)

    def reward(s: States) -> Tensor:
        distance = torch.linalg.vector_norm(s["position"] - place.to(s.obs), dim=-1)
        near = tolerance(distance, 0.0, TARGET_RADIUS, margin=margin)
        gentle = (1 - s.need_action().to(s.obs).square()).mean(-1)
        return near * (4 + gentle) / 5

    suffix = "" if margin == WIDE_MARGIN else "_exorl"
    description = f"be {corner.replace('_', ' ')}, gently; felt from {margin:g} m (needs actions)"
    return Task(f"reach_{corner}{suffix}", reward, description, place=(*CORNERS[corner], 0.0))


def _clockwise(s: States) -> Tensor:
    """Speed clockwise along the top, right, bottom and left edge, ``[..., 4]``."""
    v_x, v_y = s["velocity"].unbind(-1)
    return torch.stack([v_x, -v_y, -v_x, v_y], dim=-1)


def _in_one_corridor(s: States, inner: float, outer: float, paid: Tensor) -> Tensor:
    """The entry of ``paid [..., 4]`` for the corridor we are in; nothing inside, and nothing in two at once.

    Corridors run along the top, right, bottom and left edge, from ``inner`` to ``outer`` off the centre.
    """
    x, y = s["position"].unbind(-1)
    off_centre = torch.stack([y, x, -y, -x], dim=-1)
    here = (off_centre > inner) & (off_centre < outer)
    alone = here.sum(-1, keepdim=True) == 1
    return torch.where(here & alone, paid, 0.0).sum(-1)


def _square(s: States) -> Tensor:
    return _in_one_corridor(s, 0.2, math.inf, 10 * _clockwise(s).clamp(0.0, 0.1))


def _fast_slow(s: States) -> Tensor:
    back = -_clockwise(s)
    slow = tolerance(back[..., 0::2], 0.04, 0.05, margin=0.01, shape="linear", at_margin=0.0)
    fast = tolerance(back[..., 1::2], 0.09, 0.1, margin=0.01, shape="linear", at_margin=0.0)
    return _in_one_corridor(s, 0.2, 0.28, torch.stack([slow, fast], dim=-1).flatten(-2))


def _loop(s: States) -> Tensor:
    """Around the diamond |x| + |y| = 0.24: mean of being on it and of moving clockwise, in x and in y."""
    (x, y), (v_x, v_y) = s["position"].unbind(-1), s["velocity"].unbind(-1)
    off = (x.abs() + y.abs() - 0.24).abs() / math.sqrt(2)
    on_it = tolerance(off, 0.0, 0.02, margin=0.02, shape="linear", at_margin=0.0)
    along = torch.stack([torch.where(y >= 0, v_x, -v_x), torch.where(x <= 0, v_y, -v_y)])
    moving = tolerance(along, 0.06, 0.1, margin=0.01, shape="linear", at_margin=0.0)
    return (on_it + moving.sum(0)) / 3


_at_bottom_left = _reach("bottom_left", WIDE_MARGIN)


def _long_way(s: States) -> Tensor:
    """Where the corner is out of sight, wages for walking clockwise and twenty times the fine for going back.

    td_jepa has this reward twice, and the one for labelling data swaps wage and fine in the bottom corridor.
    This is the one that scores episodes.
    """
    there = _at_bottom_left(s)
    along = _clockwise(s).clamp(-0.1, 0.1)
    wages = torch.where(along >= 0, 5.0, 100.0) * along
    return torch.where(there < 0.01, _in_one_corridor(s, 0.15, math.inf, wages), there)


TASKS = (
    *(_reach(corner, margin) for margin in (WIDE_MARGIN, NARROW_MARGIN) for corner in CORNERS),
    replace(
        _at_bottom_left,
        name="reach_bottom_left_long",
        reward=_long_way,
        description="be bottom left, having walked clockwise (needs actions)",
    ),
    Task("loop", _loop, "clockwise around a diamond through all four rooms, at 0.06 m/s or more each way"),
    Task("square", _square, "fast and clockwise through the corridors along the edges"),
    Task("fast_slow", _fast_slow, "counter-clockwise: fast along the sides, slowly along top and bottom"),
)
