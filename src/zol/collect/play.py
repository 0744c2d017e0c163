"""Play data on the table, by OGBench's recipe: pick cubes up and put them elsewhere, or press buttons,
without end.

A plan is a list of key poses of the gripper with times, interpolated linearly (yaw the shorter way round) at
the rate of actions, plus noise that is smooth in time. Actions are the differences between plan and gripper.
When a plan has ended the next target is drawn, so that an episode of 1000 steps holds about ten moved cubes
or thirty presses. Plans of all environments are arrays; those that end at the same step are made together.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.common.errors import DataError
from zol.fields import States
from zol.worlds.base import World
from zol.worlds.dmc.domain import Array, uniform
from zol.worlds.ogbench.arm import CENTRE, GRIPPER_SCALE, SCALE, STRETCH
from zol.worlds.ogbench.cube import FREE_AREA, IN_PLACE, ON_TABLE, CubeWorld
from zol.worlds.ogbench.puzzle import BUTTONS, PuzzleWorld

Indices = NDArray[np.int64]
SECONDS = 0.05  # between two actions
INTERVAL = 0.4  # seconds, the unit of plans
NOISE = 0.1 * STRETCH
SMOOTHING = np.exp(-(np.arange(-2, 3) ** 2) / (2 * 0.5**2))  # a Gaussian of half a step
STEPS = 1000
CUBE_HEIGHT = 0.04
HALF_PI = np.pi / 2
UP = np.array([0.0, 0.0, 1.0])
# Times of the key poses of moving a cube, in intervals, and how far the gripper is closed there.
MOVE_TIMES = np.array([0.0, 1.0, 2.5, 3.5, 4.5, 5.5, 6.5, 8.0, 9.0, 10.0, 11.0])
MOVE_GRIP = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])


class Player(ABC):
    """n arms at play; what a plan is for is decided by a subclass."""

    steps = STEPS

    def __init__(self, world: CubeWorld | PuzzleWorld) -> None:
        self.world = world

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Objects and arms anywhere."""
        self.generator = generator
        self.plan: Array = np.zeros((n, 0, 5))
        self.length, self.at = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.tried, self.done = 0, 0
        return torch.from_numpy(self.world.scattered(n, generator))

    def act(self, states: States) -> Tensor:
        """The step from the gripper's pose to that of the plan."""
        seen = _Seen(states)
        over = np.flatnonzero(self.at >= self.length)
        if len(over):
            ended = over[self.length[over] > 0]
            self.tried, self.done = self.tried + len(ended), self.done + int(self.achieved(seen, ended).sum())
            self._replan(seen, over)
        wanted = self.plan[np.arange(len(self.at)), self.at]
        self.at += 1
        off = wanted - np.concatenate([seen.place, seen.yaw[:, None], seen.gripper[:, None]], axis=1)
        return torch.from_numpy(np.clip(off / STRETCH, -1, 1))

    def end(self, states: States) -> Mapping[str, int]:
        """Plans that ended, and how many of them achieved what they were for."""
        return {"plans": self.tried, "achieved": self.done}

    @abstractmethod
    def achieved(self, seen: "_Seen", which: Indices) -> NDArray[np.bool_]:
        """Whether the plans of these environments did what they were made for."""

    @abstractmethod
    def keyframes(self, seen: "_Seen", which: Indices) -> tuple[Array, Array, Array, Array]:
        """Times ``[m, K]`` in seconds, places ``[m, K, 3]``, yaws ``[m, K]``, grips ``[K]`` of new plans."""

    def draw(self, low: Array | float, high: Array | float, shape: tuple[int, ...]) -> Array:
        """Uniform numbers."""
        return uniform(
            np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64), shape, self.generator
        )

    def _replan(self, seen: "_Seen", which: Indices) -> None:
        times, places, yaws, grip = self.keyframes(seen, which)
        longest = int(np.ceil(times[:, -1].max() / SECONDS)) + 1
        t = SECONDS * np.arange(longest)
        segment = np.minimum(
            (times[:, None, :] <= t[None, :, None]).sum(-1) - 1, times.shape[1] - 2
        )  # [m, T]
        rows = np.arange(len(which))[:, None]
        begin, end = times[rows, segment], times[rows, segment + 1]
        share = np.clip((t[None] - begin) / (end - begin), 0, 1)[..., None]
        path = places[rows, segment] * (1 - share) + places[rows, segment + 1] * share
        turn = _wrapped(yaws[rows, segment + 1] - yaws[rows, segment])
        yaw = _wrapped(yaws[rows, segment] + share[..., 0] * turn)
        held = grip[segment] * (1 - share[..., 0]) + grip[segment + 1] * share[..., 0]
        plan = np.concatenate([path, yaw[..., None], held[..., None]], axis=-1)
        if longest > self.plan.shape[1]:
            self.plan = np.pad(self.plan, ((0, 0), (0, longest - self.plan.shape[1]), (0, 0)))
        self.plan[which, :longest] = plan + self._noise(len(which), longest)
        self.length[which] = np.ceil(times[:, -1] / SECONDS - 1e-9).astype(np.int64)  # steps before its end
        self.at[which] = 0

    def _noise(self, plans: int, length: int) -> Array:
        white = torch.randn(plans, length, 5, generator=self.generator, dtype=torch.float64).numpy()
        padded = np.pad(white, ((0, 0), (2, 2), (0, 0)), mode="symmetric")
        weights = SMOOTHING / SMOOTHING.sum()
        return NOISE * sum(w * padded[:, k : k + length] for k, w in enumerate(weights))


class CubePlayer(Player):
    """Moves one of the cubes at a time."""

    world: CubeWorld

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Cubes and arms anywhere; how often cubes are stacked is drawn per episode."""
        states = super().begin(n, generator)
        self.cube, self.target = np.zeros(n, dtype=np.int64), np.zeros((n, 3))
        most = 0.25 if self.world.cubes > 1 else 0.0
        self.stacking = self.draw(0.0, most, (n,))
        return states

    def achieved(self, seen: "_Seen", which: Indices) -> NDArray[np.bool_]:
        """Whether the cube is where it should be."""
        cubes = seen.cubes(self.world.cubes)[0][which, self.cube[which]]
        close: NDArray[np.bool_] = np.linalg.norm(cubes - self.target[which], axis=-1) <= IN_PLACE
        return close

    def keyframes(self, seen: "_Seen", which: Indices) -> tuple[Array, Array, Array, Array]:
        """Hover over the cube, grasp it, lift it, carry it over, put it down, let go, withdraw."""
        m = len(which)
        where, turned = (values[which] for values in seen.cubes(self.world.cubes))
        self.cube[which], self.target[which] = self._choose(where, which)
        rows = np.arange(m)
        cube = where[rows, self.cube[which]]
        initial, heading = seen.place[which], seen.yaw[which]
        grasp = _nearest_quarter(heading, turned[rows, self.cube[which]])
        release = _nearest_quarter(grasp, self.draw(0.0, 2 * np.pi, (m,)))
        over_cube = cube + UP * self.draw(0.1, 0.2, (m, 1))
        target = self.target[which]
        over_target = target + UP * self.draw(0.1, 0.2, (m, 1))
        bend = (
            np.tan(_wrapped(release - grasp) / 4)[:, None] / 2
        )  # a screw motion passes the middle of an arc
        across = (over_target - over_cube)[:, :2]
        middle = (over_cube + over_target) / 2
        middle[:, :2] -= bend * np.stack([-across[:, 1], across[:, 0]], axis=-1)
        middle[:, 2] = initial[:, 2]
        clear = middle + self.draw(np.array([-0.1, -0.1, 0.0]), np.array([0.1, 0.1, 0.2]), (m, 3))
        bounds = self.world.arm_bounds
        final, last_yaw = self.draw(bounds[0], bounds[1], (m, 3)), self.draw(-np.pi, np.pi, (m,))
        half = grasp + _wrapped(release - grasp) / 2
        places = [
            initial,
            over_cube,
            cube,
            cube,
            over_cube,
            clear,
            over_target,
            target,
            target,
            over_target,
            final,
        ]
        yaws = [heading, grasp, grasp, grasp, grasp, half, release, release, release, release, last_yaw]
        jitter = self.draw(-0.2, 0.2, (m, len(MOVE_TIMES)))
        jitter[:, 0] = 0.0
        return INTERVAL * (MOVE_TIMES + jitter), np.stack(places, 1), np.stack(yaws, 1), MOVE_GRIP

    def _choose(self, where: Array, which: Indices) -> tuple[Indices, Array]:
        """A cube with nothing on it, and where it goes: somewhere on the table, or onto another one."""
        m, count = where.shape[:2]
        apart = np.linalg.norm(where[:, :, None, :2] - where[:, None, :, :2], axis=-1)
        above = (where[:, None, :, 2] > where[:, :, None, 2]) & (apart < 0.02)  # [m, cube, other on it]
        free = ~(above & ~np.eye(count, dtype=bool)).any(-1)
        cube = np.where(free, self.draw(0.0, 1.0, (m, count)), -1.0).argmax(-1)
        rest = free.copy()
        rest[np.arange(m), cube] = False
        stack = rest.any(-1) & (self.draw(0.0, 1.0, (m,)) < self.stacking[which])
        under = np.where(rest, self.draw(0.0, 1.0, (m, count)), -1.0).argmax(-1)
        target = np.full((m, 3), ON_TABLE)
        target[:, :2] = self.draw(FREE_AREA[0], FREE_AREA[1], (m, 2))
        onto = where[np.arange(m), under] + np.array([0.0, 0.0, CUBE_HEIGHT])
        return cube, np.where(stack[:, None], onto, target)


class ButtonPlayer(Player):
    """Presses one button at a time, with a closed gripper."""

    world: PuzzleWorld

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Random colours, arms anywhere above the buttons."""
        states = super().begin(n, generator)
        self.button, self.colour = np.zeros(n, dtype=np.int64), np.zeros(n)
        return states

    def achieved(self, seen: "_Seen", which: Indices) -> NDArray[np.bool_]:
        """Whether the button shows the other colour now."""
        changed: NDArray[np.bool_] = seen.colours()[which, self.button[which]] != self.colour[which]
        return changed

    def keyframes(self, seen: "_Seen", which: Indices) -> tuple[Array, Array, Array, Array]:
        """Above the button, down onto it, up again, away."""
        m = len(which)
        button = torch.randint(BUTTONS, (m,), generator=self.generator).numpy()
        self.button[which], self.colour[which] = button, seen.colours()[which, button]
        top = self.world.tops[button]
        initial, over, pressed = seen.place[which], top + 0.06 * UP, top - 0.025 * UP
        bounds = self.world.arm_bounds
        final, last_yaw = self.draw(bounds[0], bounds[1], (m, 3)), self.draw(-np.pi, np.pi, (m,))
        approach = 0.5 + 4 * np.linalg.norm(initial - over, axis=-1)
        durations = np.stack([np.zeros(m), approach, *(np.full(m, d) for d in (0.8, 0.8, 1.25))], axis=1)
        jitter = self.draw(-0.1, 0.1, (m, 5))
        jitter[:, 0] = 0.0
        turn = top[:, 0]  # the recipe takes the button's x for the yaw
        yaws = np.stack([seen.yaw[which], turn, turn, turn, last_yaw], axis=1)
        places = np.stack([initial, over, pressed, over, final], axis=1)
        return INTERVAL * (durations.cumsum(1) + jitter), places, yaws, np.ones(5)


class _Seen:
    """What a player reads of observations: poses in metres and radians."""

    def __init__(self, states: States) -> None:
        self.states = states
        self.place: Array = states["effector"].double().numpy() / SCALE + CENTRE
        cosine, sine = states["effector_yaw"].double().numpy().T
        self.yaw: Array = np.arctan2(sine, cosine)
        self.gripper: Array = states["gripper"].double().numpy() / GRIPPER_SCALE

    def cubes(self, count: int) -> tuple[Array, Array]:
        """Places ``[n, count, 3]`` and yaws ``[n, count]``."""
        places = np.stack(
            [self.states[f"cube_{k}"].double().numpy() / SCALE + CENTRE for k in range(count)], axis=1
        )
        turns = np.stack([self.states[f"cube_{k}_yaw"].double().numpy() for k in range(count)], axis=1)
        return places, np.arctan2(turns[..., 1], turns[..., 0])

    def colours(self) -> Array:
        """0 or 1 for every button, ``[n, 9]``."""
        shown: Array = self.states["buttons"].double().numpy()
        return shown


def player(world: World) -> Player:
    """Who plays in this world."""
    if isinstance(world, CubeWorld):
        return CubePlayer(world)
    if isinstance(world, PuzzleWorld):
        return ButtonPlayer(world)
    raise DataError(
        f"--how play is for cubes and buttons, and {world.name} has none: try navigate, stitch or rnd"
    )


def _wrapped(angle: Array) -> Array:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _nearest_quarter(heading: Array, yaw: Array) -> Array:
    """The turn of a cube, which looks alike from four sides, that is closest to the gripper's."""
    return heading + (yaw - heading + np.pi / 4) % HALF_PI - np.pi / 4
