"""Lights Out on the table: pressing one of 3 × 3 buttons switches it and its neighbours over.

55 observations: the arm's 19, then per button which of its two colours it shows (one-hot), how deep it is
pressed and how fast it moves. Colours are not part of MuJoCo's state: they stand behind it in a simulator
state, one column per button. The reward counts buttons of the wrong colour (minus one each).
"""

import xml.etree.ElementTree as ET

import mujoco
import numpy as np
import torch
from torch import Tensor

from zol.fields import Field, Layout, States
from zol.tasks import Task
from zol.worlds.base import Painter
from zol.worlds.dmc.domain import Array, Batch, Domain, Model
from zol.worlds.ogbench.arm import ARM_FIELDS, ARM_SIZE, OBJECTS, SUBSTEPS, ArmWorld, compiled, table
from zol.worlds.ogbench.package import model_file
from zol.worlds.ogbench.rewards import goal_tasks

SIDE = 3
BUTTONS = SIDE * SIDE
SPACING = 0.1  # metres between neighbours
PRESSED = -0.02  # metres; passing it downwards switches
DEPTH_SCALE = 120.0
BUTTON_SIZE = 4  # columns of an observation per button
ABOVE_BUTTONS = np.array([[0.25, -0.2, 0.20], [0.6, 0.2, 0.25]])  # where episodes begin
CAMERA = ((1.139, 0.0, 0.821), (0.0, 1.0, 0.0, -0.627, 0.0, 0.779))
# Colours at first and in the end, row by row.
PUZZLES = (
    ("000000000", "110101011"),
    ("111111111", "011111111"),
    ("010111010", "101010101"),
    ("010101010", "111111111"),
    ("111111111", "101101101"),
)
TOPS = "buttons/btntop_"


class PuzzleWorld(ArmWorld):
    """A table with buttons."""

    memory_dim = BUTTONS
    episode_length = 500

    def __init__(self) -> None:
        spec = build_spec()
        model = compiled(spec)
        domain = Domain(
            name="puzzle-3x3",
            model=model,
            substeps=SUBSTEPS,
            layout=LAYOUT,
            tasks={},
            discount=0.99,
            starts=self._any_start,
            observe=self._observe,
            reads=("site_xpos", "site_xmat", "cfrc_ext"),
            stage=mujoco.mjtStage.mjSTAGE_POS,
            camera=int(model.camera("front").id),
        )
        super().__init__(domain, spec, arm_bounds=ABOVE_BUTTONS)
        self._force: Array | None = None
        self.tops: Array = _tops(model)  # places of the buttons' tops in metres, [9, 3]
        made = [
            task for number, pair in enumerate(PUZZLES, 1) for task in self._tasks(f"task{number}", *pair)
        ]
        self.tasks = {task.name: task for task in made}

    def starts_with(self, colours: Array, generator: torch.Generator) -> Array:
        """Simulator states with buttons of these colours ``[n, 9]``, at rest."""
        n = len(colours)
        return np.concatenate(
            [self.arm_starts(n, generator), np.zeros((n, self.domain.model.nv)), colours], axis=1
        )

    def scattered(self, n: int, generator: torch.Generator) -> Array:
        """Simulator states with random colours, from which data are collected."""
        colours = torch.randint(2, (n, BUTTONS), generator=generator).double().numpy()
        return self.starts_with(colours, generator)

    def _any_start(self, of: Model, n: int, generator: torch.Generator) -> Array:
        chosen = torch.randint(len(PUZZLES), (n,), generator=generator).numpy()
        return self.starts_with(np.array([_colours(begin) for begin, _ in PUZZLES])[chosen], generator)

    def set_physics(self, physics: Tensor) -> States:
        """Put as many environments as there are rows into these states."""
        self._force = None
        return super().set_physics(physics)

    def _advance(self, batch: Batch, action: Array) -> None:
        before = batch.qpos[:, OBJECTS:].copy()
        super()._advance(batch, action)
        pressed = (before > PRESSED) & (batch.qpos[:, OBJECTS:] <= PRESSED)
        self._memory = (self._memory + pressed @ SWITCHES) % 2
        # Contact forces stay those of the last physics step; everything else is computed where that step led
        # to.
        self._force = batch.cfrc_ext[:, self._pad].copy()
        batch.forward(stage=mujoco.mjtStage.mjSTAGE_ACC)

    def _observe(self, batch: Batch) -> Array:
        parts = self.observe_arm(batch)
        depth, speed = batch.qpos[:, OBJECTS:], batch.qvel[:, OBJECTS:]
        colours = np.zeros_like(depth)
        colours[: len(self._memory)] = self._memory
        buttons = np.stack([1 - colours, colours, depth * DEPTH_SCALE, speed], axis=-1)
        return np.concatenate([*parts, buttons.reshape(len(depth), -1)], axis=1)

    def painter(self, width: int = 320, height: int = 320) -> Painter:
        """Draws pictures of simulator states, with the buttons in their colours."""
        from zol.worlds.ogbench.puzzle_painter import PuzzlePainter

        geoms = [int(self.domain.model.geom(f"buttons/btngeom_{k}").id) for k in range(BUTTONS)]
        return PuzzlePainter(self, geoms, width, height)

    def finger_force(self, batch: Batch) -> Array:
        """Force and torque on a finger ``[n, 6]`` in the last physics step."""
        if self._force is not None and batch is self._batch:
            return self._force
        return super().finger_force(batch)

    def _tasks(self, name: str, begin: str, goal: str) -> tuple[Task, Task]:
        first, wanted = _colours(begin), _colours(goal)
        target = torch.from_numpy(wanted) > 0.5

        def right(states: States) -> Tensor:
            return (colours_of(states) > 0.5) == target.to(states.obs.device)

        def starts(n: int, generator: torch.Generator) -> Tensor:
            return torch.from_numpy(self.starts_with(np.tile(first, (n, 1)), generator))

        words = f"buttons from {begin} to {goal}, row by row"
        return goal_tasks(name, words, right, starts, self._shown(wanted))

    def _shown(self, colours: Array) -> Tensor:
        """What the goal looks like: the colours, and the gripper waiting above the middle."""
        physics = np.zeros((1, self.domain.physics_dim + BUTTONS))
        qpos = physics[:, : self.domain.model.nq]
        qpos[:] = self.domain.model.qpos0
        qpos[:, :6] = self.reach(self.arm_bounds.mean(0, keepdims=True), np.zeros(1))
        physics[0, -BUTTONS:] = colours
        return self.observe(torch.from_numpy(physics))[0]


def puzzle_3x3() -> PuzzleWorld:
    """Nine buttons; episodes of 500 steps."""
    return PuzzleWorld()


def colours_of(states: States) -> Tensor:
    """Which colour each button shows, 0 or 1, ``[..., 9]``."""
    columns = states.obs[..., ARM_SIZE + 1 :: BUTTON_SIZE]
    return columns[..., :BUTTONS]


def build_spec() -> "mujoco.MjSpec":
    """The table with nine buttons on it."""
    spec = table(CAMERA)
    folder = model_file("manipspace/descriptions/button_outer.xml").parent
    outer, inner = (
        ET.parse(folder / "button_outer.xml").getroot(),
        ET.parse(folder / "button_inner.xml").getroot(),
    )
    compiler, world = outer.find("compiler"), outer.find("worldbody")
    assert compiler is not None
    assert world is not None
    compiler.set("assetdir", str(folder))
    template = inner.find("worldbody/body")
    assert template is not None
    text, height = ET.tostring(template, encoding="unicode"), template.get("pos", "0 0 0").split()[2]
    for k in range(BUTTONS):
        button = ET.fromstring(text.replace('_0"', f'_{k}"'))
        row, column = divmod(k, SIDE)
        x = 0.425 - SPACING / 2 * (SIDE - 1) + SPACING * row
        y = 0.0 - SPACING / 2 * (SIDE - 1) + SPACING * column
        button.set("pos", f"{x!r} {y!r} {height}")
        world.append(button)
    buttons = mujoco.MjSpec.from_string(ET.tostring(outer, encoding="unicode"))
    spec.attach(buttons, frame=spec.worldbody.add_frame(), prefix="buttons/")
    return spec


def _tops(model: Model) -> Array:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return np.array([data.site(f"{TOPS}{k}").xpos for k in range(BUTTONS)])


def _switches() -> Array:
    """Which buttons a press switches, ``[pressed, switched]``."""
    place = np.stack(np.divmod(np.arange(BUTTONS), SIDE), axis=1)
    apart = np.abs(place[:, None] - place[None]).sum(-1)
    return (apart <= 1).astype(np.float64)


def _colours(text: str) -> Array:
    return np.array([float(mark) for mark in text])


SWITCHES = _switches()
LAYOUT = Layout(
    ARM_SIZE + BUTTON_SIZE * BUTTONS,
    (
        *ARM_FIELDS,
        *(
            field
            for k in range(BUTTONS)
            for field in (
                Field(f"button_{k}", ARM_SIZE + BUTTON_SIZE * k, 2, "", "one-hot: red, blue"),
                Field(
                    f"button_{k}_depth",
                    ARM_SIZE + BUTTON_SIZE * k + 2,
                    1,
                    "m/120",
                    "0 up, negative when pressed",
                ),
                Field(f"button_{k}_velocity", ARM_SIZE + BUTTON_SIZE * k + 3, 1, "m/s"),
            )
        ),
    ),
    derived={"buttons": colours_of},
)
