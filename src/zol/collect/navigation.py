"""Maze data by OGBench's recipes: walk along shortest ways, stitch short ones, or stagger about.

navigate   start in any free cell, go to a cell that is no corridor, then to the next one; episodes of 1000
steps stitch     go to a cell exactly four cells away and stay there; 200 steps, so that long ways must be put
together explore    a random direction every ten steps, with so much noise that it hardly gets anywhere; 500
steps

The way is that of a breadth-first search over cells: go towards the centre of the next one, and inside the
last one towards the goal itself. A point moves along the direction; an ant is commanded by it
(:mod:`zol.collect.ant_expert`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.collect.ant_expert import AntExpert, load_expert, unit_directions
from zol.common.errors import DataError
from zol.fields import States
from zol.worlds.base import World
from zol.worlds.ogbench.maze import REACH, START_SPREAD, MazeWorld

MazeHow = Literal["navigate", "stitch", "explore"]
STEPS: dict[MazeHow, int] = {"navigate": 1000, "stitch": 200, "explore": 500}
NOISE = {"point": 0.5, "ant": 0.2}
EXPLORING_NOISE = 1.0
EXPLORING_STEPS = 10  # with one direction
STITCH_CELLS = 4  # from start to goal


class Navigator:
    """n bodies on their ways through one maze."""

    def __init__(self, world: World, how: MazeHow, expert: str | Path | None = None) -> None:
        if not isinstance(world, MazeWorld) or world.maze is None:
            raise DataError(f"--how {how} walks through a maze, and {world.name} is none")
        self.world, self.maze, self.how = world, world.maze, how
        self.steps = STEPS[how]
        self.noise = EXPLORING_NOISE if how == "explore" else NOISE[world.body]
        self.expert: AntExpert | None = load_expert(expert) if world.body == "ant" else None
        self.time = 0

    def begin(self, n: int, generator: torch.Generator) -> Tensor:
        """Simulator states to begin in; goals are drawn, too."""
        self.generator, self.time = generator, 0
        here = torch.randint(len(self.maze.free), (n,), generator=generator).numpy()
        self.goal_cell = np.zeros(n, dtype=np.int64)
        self.goal = np.zeros((n, 2))
        self.direction = np.zeros((n, 2))
        self.first, self.reached = np.zeros(n, dtype=bool), 0
        self._new_goals(np.arange(n), here)
        return self.world.starts_in(self.maze.free[here], generator)

    def act(self, states: States) -> Tensor:
        """Towards the next cell, or wherever chance wants to go; with noise."""
        place = states["place"].double().numpy()
        if self.how == "explore":
            if self.time % EXPLORING_STEPS == 0:
                self.direction = unit_directions(len(place), self.generator).double().numpy()
        else:
            self._arrivals(place)
            self.direction = self._way(place)
        self.time += 1
        wanted = torch.from_numpy(self.direction)
        if self.expert is not None:
            wanted = self.expert(states.obs.float(), wanted.float())
        noise = torch.randn(wanted.shape, generator=self.generator, dtype=torch.float64)
        return (wanted + self.noise * noise).clamp(-1, 1)

    def end(self, states: States) -> Mapping[str, int]:
        """Episodes, those in which the first goal was reached, and goals reached altogether."""
        if self.how == "explore":
            return {"episodes": len(self.goal)}
        self._arrivals(states["place"].double().numpy())
        return {"episodes": len(self.goal), "first_goals": int(self.first.sum()), "goals": self.reached}

    def _way(self, place: NDArray[np.float64]) -> NDArray[np.float64]:
        here = self.maze.cell_of(place)
        following = self.maze.next_cell[here, self.goal_cell]
        inside = (here == self.goal_cell)[:, None]
        towards = np.where(inside, self.goal, self.maze.centres[following]) - place
        return towards / (np.linalg.norm(towards, axis=-1, keepdims=True) + 1e-6)

    def _arrivals(self, place: NDArray[np.float64]) -> None:
        there = np.linalg.norm(place - self.goal, axis=-1) <= REACH[self.world.body]
        if self.how == "stitch":  # stay: the goal is counted once
            self.reached += int((there & ~self.first).sum())
            self.first |= there
        elif there.any():
            self.reached += int(there.sum())
            self.first |= there
            self._new_goals(np.flatnonzero(there), self.maze.cell_of(place[there]))

    def _new_goals(self, which: NDArray[np.int64], here: NDArray[np.int64]) -> None:
        if self.how == "stitch":
            allowed = self.maze.distances[here] == STITCH_CELLS
        else:
            cells = self.maze.number[tuple(self.maze.junctions.T)]
            allowed = np.zeros((len(which), len(self.maze.free)), dtype=bool)
            allowed[:, cells] = True
        luck = torch.rand(allowed.shape, generator=self.generator, dtype=torch.float64).numpy()
        chosen = np.where(allowed, luck, -1.0).argmax(-1)
        spread = torch.rand(len(which), 2, generator=self.generator, dtype=torch.float64).numpy()
        self.goal_cell[which] = chosen
        self.goal[which] = self.maze.centres[chosen] + START_SPREAD * (2 * spread - 1)
