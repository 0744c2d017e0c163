"""The slow way: dm_control's own physics, one environment at a time, one reward at a time.

Nothing here comes from zol. Stock tasks are dm_control's; the others are written out from the engine's own
quantities (subtree momentum, subtree centre of mass), which zol's formulas never look at.
"""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np
from dm_control import mujoco as control_mujoco
from dm_control import suite
from dm_control.rl.control import flatten_observation
from dm_control.utils.rewards import tolerance
from present import present

DOMAINS = ("walker", "cheetah", "quadruped", "point_mass_maze")
STOCK = {"walker": ("stand", "walk", "run"), "cheetah": ("run",), "quadruped": ("walk", "run")}
SUBSTEPS = {"walker": 10, "cheetah": 1, "quadruped": 4, "point_mass_maze": 1}
INF = float("inf")


class Reference:
    """One dm_control environment of a domain."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.stock = {task: suite.load(domain, task).task for task in STOCK.get(domain, ())}
        if self.stock:
            self.physics = suite.load(domain, next(iter(self.stock))).physics
        else:
            self.physics = control_mujoco.Physics.from_xml_string(maze_xml(), suite.common.ASSETS)
        self.action = np.zeros(0)

    def set_state(self, state: np.ndarray) -> None:
        with self.physics.reset_context():
            self.physics.set_state(state)

    def step(self, action: np.ndarray) -> None:
        low, high = self.physics.model.actuator_ctrlrange.T
        self.action = action
        self.physics.set_control((high + low) / 2 + (high - low) / 2 * action)
        self.physics.step(SUBSTEPS[self.domain])

    def observation(self) -> np.ndarray:
        if not self.stock:
            return np.concatenate([self.physics.position(), self.physics.velocity()])
        observed = next(iter(self.stock.values())).get_observation(self.physics)
        return flatten_observation(observed)["observations"]

    def rewards(self) -> dict[str, float]:
        stock = {name: float(task.get_reward(self.physics)) for name, task in self.stock.items()}
        custom = {"walker": walker, "cheetah": cheetah, "quadruped": quadruped, "point_mass_maze": maze}
        return {**custom[self.domain](self), **stock}

    def momentum(self) -> float:
        mujoco.mj_subtreeVel(self.physics.model.ptr, self.physics.data.ptr)
        return float(self.physics.data.subtree_angmom[1][1])


def ramp(x: float, target: float, at_margin: float) -> float:
    return float(tolerance(x, (target, INF), margin=target, value_at_margin=at_margin, sigmoid="linear"))


def walker(ref: Reference) -> dict[str, float]:
    stand = float(ref.stock["stand"].get_reward(ref.physics))
    momentum = ref.momentum()
    return {"spin": ramp(momentum, 10, 0), "flip": stand * (5 * ramp(momentum, 5, 0) + 1) / 6}


def cheetah(ref: Reference) -> dict[str, float]:
    speed, momentum = float(ref.physics.speed()), ref.momentum()
    return {
        "run_backward": ramp(-speed, 10, 0),
        "walk": ramp(speed, 2, 0),
        "walk_backward": ramp(-speed, 2, 0),
        "flip": ramp(momentum, 5, 0),
        "flip_backward": ramp(-momentum, 5, 0),
    }


def quadruped(ref: Reference) -> dict[str, float]:
    upright = tolerance(float(ref.physics.torso_upright()), (1, INF), 2, "linear", 0)
    height = float(ref.physics.named.data.subtree_com["torso", "z"])
    speed = float(np.linalg.norm(ref.physics.torso_velocity()))
    return {
        "stand": upright,
        "jump": upright * ramp(height, 1, 0.5),
        "roll": upright * ramp(speed, 0.5, 0.5),
        "roll_fast": upright * ramp(speed, 5, 0.5),
    }


def maze(ref: Reference) -> dict[str, float]:
    position = ref.physics.named.data.geom_xpos["pointmass"][:2]
    gentle = float(
        np.mean([tolerance(a, margin=1, value_at_margin=0, sigmoid="quadratic") for a in ref.action])
    )
    rewards = {}
    for vertical, y in (("top", 0.15), ("bottom", -0.15)):
        for side, x in (("left", -0.15), ("right", 0.15)):
            distance = float(np.hypot(position[0] - x, position[1] - y))
            for suffix, margin in (("", 0.09), ("_exorl", 0.015)):
                near = tolerance(distance, bounds=(0, 0.015), margin=margin)
                rewards[f"reach_{vertical}_{side}{suffix}"] = float(near * (4 + gentle) / 5)
    (x, y), (v_x, v_y) = (float(p) for p in position), (float(v) for v in ref.physics.velocity())
    rewards["loop"] = maze_loop(x, y, v_x, v_y)
    rewards["square"] = maze_square(x, y, v_x, v_y)
    rewards["fast_slow"] = maze_fast_slow(x, y, v_x, v_y)
    there = rewards["reach_bottom_left"]
    rewards["reach_bottom_left_long"] = there if there >= 0.01 else maze_wages(x, y, v_x, v_y)
    return rewards


def maze_ramp(v: float, low: float, high: float) -> float:
    return float(tolerance(v, bounds=(low, high), margin=0.01, value_at_margin=0, sigmoid="linear"))


def maze_loop(x: float, y: float, v_x: float, v_y: float) -> float:
    """Room by room: which side of the diamond |x| + |y| = 0.24 is here, and where does clockwise lead?"""
    rightwards, leftwards = maze_ramp(v_x, 0.06, 0.1), maze_ramp(v_x, -0.1, -0.06)
    upwards, downwards = maze_ramp(v_y, 0.06, 0.1), maze_ramp(v_y, -0.1, -0.06)
    if y >= 0 and x <= 0:
        nearest, moving = y - (x + 0.24), rightwards + upwards
    elif y >= 0:
        nearest, moving = y - (0.24 - x), rightwards + downwards
    elif x <= 0:
        nearest, moving = y - (-x - 0.24), leftwards + upwards
    else:
        nearest, moving = y - (x - 0.24), leftwards + downwards
    distance = abs(nearest) / np.sqrt(2)
    on_it = tolerance(distance, bounds=(0, 0.02), margin=0.02, value_at_margin=0, sigmoid="linear")
    return float((on_it + moving) / 3)


def maze_corridors(x: float, y: float, inner: float, outer: float) -> list[str]:
    inside = {"top": inner < y < outer, "right": inner < x < outer}
    inside |= {"bottom": -outer < y < -inner, "left": -outer < x < -inner}
    return [name for name, here in inside.items() if here]


def maze_square(x: float, y: float, v_x: float, v_y: float) -> float:
    match maze_corridors(x, y, 0.2, INF):
        case ["top"]:
            return 10 * min(max(v_x, 0), 0.1)
        case ["right"]:
            return 10 * min(max(-v_y, 0), 0.1)
        case ["bottom"]:
            return 10 * min(max(-v_x, 0), 0.1)
        case ["left"]:
            return 10 * min(max(v_y, 0), 0.1)
    return 0.0


def maze_fast_slow(x: float, y: float, v_x: float, v_y: float) -> float:
    match maze_corridors(x, y, 0.2, 0.28):
        case ["top"]:
            return maze_ramp(v_x, -0.05, -0.04)
        case ["right"]:
            return maze_ramp(v_y, 0.09, 0.1)
        case ["bottom"]:
            return maze_ramp(v_x, 0.04, 0.05)
        case ["left"]:
            return maze_ramp(v_y, -0.1, -0.09)
    return 0.0


def maze_wages(x: float, y: float, v_x: float, v_y: float) -> float:
    def wage(along: float) -> float:
        return 5 * min(along, 0.1) if along >= 0 else 100 * max(along, -0.1)

    match maze_corridors(x, y, 0.15, INF):
        case ["top"]:
            return wage(v_x)
        case ["right"]:
            return wage(-v_y)
        case ["bottom"]:
            return wage(-v_x)
        case ["left"]:
            return wage(v_y)
    return 0.0


def maze_xml() -> bytes:
    """The stock point mass with contacts switched on, a target that touches nothing, and two walls."""
    root = ElementTree.parse(Path(suite.__file__).parent / "point_mass.xml").getroot()
    option = present(root.find("option"))
    option.remove(present(option.find("flag")))
    target = next(geom for geom in root.iter("geom") if geom.get("name") == "target")
    target.set("contype", "0")
    target.set("conaffinity", "0")
    for name, size in (("horizontal", "0.18 0.02 0.02"), ("vertical", "0.02 0.18 0.02")):
        ElementTree.SubElement(
            present(root.find("worldbody")), "geom", name=name, type="box", pos="0 0 0.02", size=size
        )
    return ElementTree.tostring(root)
