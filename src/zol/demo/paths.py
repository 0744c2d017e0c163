"""The demo's moving picture: points on the donut, plain FB above and the default method below."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from zol.common.animation import INK, PAPER, Colour, lettering, write_animation
from zol.demo.story import Story
from zol.fields import States
from zol.worlds.donut import INNER, OUTER, Donut

PANEL, GAP, LEFT, TOP, FOOT = 168, 10, 96, 30, 26  # pixels
FINE = 2  # what is drawn is shrunk by this: smooth edges
POINTS, STRIDE, FPS = 48, 2, 14
FADE = 0.88  # of trails, per picture
GROUND, REWARD = (232, 235, 239), (255, 205, 86)
COLOURS: tuple[Colour, Colour] = ((70, 99, 172), (206, 62, 43))  # plain, adapted


def write_paths(story: Story, world: Donut, path: Path) -> Path:
    """Write the animation: every task a column, the same start states in both rows."""
    methods = ("fb", story.default)
    tasks = story.evidence.tasks
    panels = [
        [
            _Panel(world, task, story.visited[name][::STRIDE, t, :POINTS], COLOURS[row])
            for t, task in enumerate(tasks)
        ]
        for row, name in enumerate(methods)
    ]
    canvas = _canvas(story, methods)
    steps = len(story.visited["fb"][::STRIDE])
    pictures = []
    for k in range(steps):
        picture = canvas.copy()
        for row, line in enumerate(panels):
            for t, panel in enumerate(line):
                x, y = _place(row, t)
                picture[y : y + PANEL, x : x + PANEL] = panel.at(k)
        pictures.append(picture)
    return write_animation(path, pictures, FPS, hold=1.5)


def _place(row: int, column: int) -> tuple[int, int]:
    return LEFT + column * (PANEL + GAP), TOP + row * (PANEL + FOOT)


def _canvas(story: Story, methods: tuple[str, str]) -> NDArray[np.uint8]:
    """What does not move: names of tasks and methods, and what was earned."""
    tasks = story.evidence.tasks
    size = (TOP + len(methods) * (PANEL + FOOT), LEFT + len(tasks) * (PANEL + GAP), 3)
    canvas = np.full(size, PAPER, dtype=np.uint8)
    plain = story.scores.values["fb"].mean(axis=(0, 2))
    for row, name in enumerate(methods):
        label = "plain FB" if name == "fb" else name
        canvas = lettering(
            canvas, label, (8, _place(row, 0)[1] + PANEL / 2), anchor="lm", size=16, colour=COLOURS[row]
        )
        earned = story.scores.values[name].mean(axis=(0, 2))
        for t, task in enumerate(tasks):
            x, y = _place(row, t)
            middle = x + PANEL / 2
            if row == 0:
                canvas = lettering(canvas, task.replace("_", " "), (middle, TOP - 12), anchor="ms", size=15)
            same = bool(torch.equal(story.methods[name].z[0, t], story.methods["fb"].z[0, t]))
            note = f"{earned[t]:.2f}"
            if row:
                note += "  (same latent)" if same else f"  ({earned[t] - plain[t]:+.2f})"
            colour = INK if row == 0 or same else COLOURS[row]
            canvas = lettering(canvas, note, (middle, y + PANEL + 3), anchor="mt", colour=colour)
    return canvas


class _Panel:
    """One task: the donut, its reward, and points with trails."""

    def __init__(self, world: Donut, task: str, paths: Tensor, colour: Colour) -> None:
        self.size, self.colour = PANEL * FINE, np.array(colour, dtype=np.float32)
        self.ground = _ground(world, task, self.size)
        self.pixels = ((paths.numpy() * (1, -1) + OUTER) / (2 * OUTER) * self.size).astype(np.float32)
        self.trail = np.zeros((self.size, self.size), dtype=np.float32)

    def at(self, k: int) -> NDArray[np.uint8]:
        """The picture of a step; steps are asked for in order, because trails fade."""
        here, before = self.pixels[k], self.pixels[max(0, k - 1)]
        strokes = Image.new("L", (self.size, self.size))
        draw = ImageDraw.Draw(strokes)
        for start, end in zip(before, here, strict=True):
            draw.line([*start, *end], fill=150, width=2 * FINE)
        self.trail = np.maximum(self.trail * FADE, np.asarray(strokes, dtype=np.float32) / 255)
        for x, y in here:
            r = 2.6 * FINE
            draw.ellipse([x - r, y - r, x + r, y + r], fill=255)
        share = np.maximum(self.trail, np.asarray(strokes, dtype=np.float32) / 255)[..., None]
        picture = (1 - share) * self.ground + share * self.colour
        return np.asarray(
            Image.fromarray(picture.astype(np.uint8)).resize((PANEL, PANEL), Image.Resampling.LANCZOS)
        )


def _ground(world: Donut, task: str, size: int) -> NDArray[np.float32]:
    """The annulus and where the reward lies on it, ``[size, size, 3]``."""
    line = torch.linspace(-OUTER, OUTER, size)
    points = torch.stack(torch.meshgrid(line, line.flip(0), indexing="xy"), dim=-1)
    radius = points.norm(dim=-1, keepdim=True)
    reward = world.tasks[task](States(points, world.layout)).unsqueeze(-1)
    colour = torch.where(reward > 0, torch.tensor(REWARD), torch.tensor(GROUND))
    inside = (radius >= INNER) & (radius <= OUTER)
    return torch.where(inside, colour, torch.tensor(PAPER)).float().numpy()
