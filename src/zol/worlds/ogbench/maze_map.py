"""The mazes as arrays: which cells are free, where they lie in metres, and the way from any cell to any
other.

Cells are named (row, column); a cell is a square of 4 m, and the centre of cell (1, 1) is the origin.
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

UNIT = 4.0  # side of a cell in metres
WALL_HEIGHT = 2.0
Cell = tuple[int, int]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))


@dataclass(frozen=True)
class MazeMap:
    """Walls (1) and free cells (0) of one maze, and its five tasks as pairs (start, goal) of cells."""

    name: str
    rows: tuple[str, ...]
    tasks: tuple[tuple[Cell, Cell], ...]

    @cached_property
    def walls(self) -> NDArray[np.bool_]:
        """Whether each cell is a wall, ``[rows, columns]``."""
        return np.array([[mark == "1" for mark in row] for row in self.rows])

    @cached_property
    def free(self) -> NDArray[np.int64]:
        """The free cells, ``[C, 2]``."""
        return np.argwhere(~self.walls)

    @cached_property
    def junctions(self) -> NDArray[np.int64]:
        """Free cells that are no corridor, ``[J, 2]``: a corridor has two free neighbours, opposite ones."""
        chosen = []
        for row, column in self.free:
            up, left, down, right = (not self.walls[row + i, column + j] for i, j in NEIGHBOURS)
            corridor = (up and down and not left and not right) or (left and right and not up and not down)
            if not corridor:
                chosen.append((row, column))
        return np.array(chosen)

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """Index of every free cell in :attr:`free`, and −1 for walls, ``[rows, columns]``."""
        found = np.full(self.walls.shape, -1)
        found[tuple(self.free.T)] = np.arange(len(self.free))
        return found

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """Steps between free cells along the shortest way, ``[C, C]``."""
        count = len(self.free)
        table = np.full((count, count), -1)
        for goal in range(count):
            table[goal, goal] = 0
            queue = deque([goal])
            while queue:
                here = queue.popleft()
                for there in self._beside(here):
                    if table[there, goal] < 0:
                        table[there, goal] = table[here, goal] + 1
                        queue.append(there)
        return table

    @cached_property
    def next_cell(self) -> NDArray[np.int64]:
        """The free cell to go to next, ``[C (here), C (goal)]``; the goal itself once it is reached."""
        count = len(self.free)
        table = np.tile(np.arange(count)[:, None], (1, count))
        for here in range(count):
            for there in self._beside(here):
                closer = self.distances[there] < self.distances[table[here], np.arange(count)]
                table[here, closer] = there
        return table

    def _beside(self, here: int) -> list[int]:
        row, column = self.free[here]
        beside = (int(self.number[row + i, column + j]) for i, j in NEIGHBOURS)
        return [there for there in beside if there >= 0]

    def cell_of(self, xy: NDArray[np.float64]) -> NDArray[np.int64]:
        """The free cells that positions ``[n, 2]`` in metres lie in, ``[n]``; in walls, the nearest ones."""
        cells = np.floor((xy[:, ::-1] + 1.5 * UNIT) / UNIT).astype(np.int64)
        cells = np.clip(cells, 0, np.array(self.walls.shape) - 1)
        found = self.number[tuple(cells.T)]
        inside = np.flatnonzero(found < 0)
        if len(inside):
            away = np.linalg.norm(xy[inside, None] - self.centres[None], axis=-1)
            found[inside] = away.argmin(-1)
        return found

    @cached_property
    def centres(self) -> NDArray[np.float64]:
        """Centres of the free cells in metres, ``[C, 2]``."""
        return centre(self.free)


def centre(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Centres (x, y) in metres of cells ``[..., 2]``."""
    return UNIT * np.asarray(cells, dtype=np.float64)[..., ::-1] - UNIT


MEDIUM = MazeMap(
    "medium",
    ("11111111", "10011001", "10010001", "11000111", "10010001", "10100101", "10001001", "11111111"),
    (((1, 1), (6, 6)), ((6, 1), (1, 6)), ((5, 3), (4, 2)), ((6, 5), (6, 1)), ((2, 6), (1, 1))),
)
LARGE = MazeMap(
    "large",
    (
        "111111111111",
        "100001000001",
        "101101010101",
        "100000010001",
        "101111011101",
        "100101000001",
        "110101010111",
        "100100010001",
        "111111111111",
    ),
    (((1, 1), (7, 10)), ((5, 4), (7, 1)), ((7, 4), (1, 10)), ((3, 8), (5, 4)), ((1, 1), (5, 4))),
)
MAZES = {maze.name: maze for maze in (MEDIUM, LARGE)}
