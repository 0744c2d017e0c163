"""Where behaviour happens: batched simulators, made by name.

``WORLDS`` names the function or class that makes each world; nothing is imported before it is asked for.
A package of your own adds a world through an entry point of the group ``zol.worlds`` (docs/add-a-world.md).
"""

from collections.abc import Callable

from zol.common.errors import DataError, unknown_name
from zol.common.registry import Entry, Registry
from zol.worlds.base import World, find_task

__all__ = ["ALIASES", "WORLDS", "World", "find_task", "make"]

WORLDS: Registry[Callable[[], World]] = Registry(
    "world",
    "zol.worlds",
    {
        "donut": Entry("zol.worlds.donut:Donut", "a point on an annulus, the paper's toy"),
        "four_rooms": Entry("zol.worlds.tabular:four_rooms", "104 cells in four rooms, solvable exactly"),
        "corridor": Entry("zol.worlds.tabular:corridor", "9 cells; both ends are terminal, and goals"),
        "walker": Entry("zol.worlds.dmc.walker:world", "a planar body on two legs", extra="dmc"),
        "cheetah": Entry("zol.worlds.dmc.cheetah:world", "a planar body that runs", extra="dmc"),
        "quadruped": Entry("zol.worlds.dmc.quadruped:world", "a body on four legs, in space", extra="dmc"),
        "point_mass_maze": Entry("zol.worlds.dmc.maze:world", "a ball in a maze of four rooms", extra="dmc"),
        "pointmaze-medium": Entry(
            "zol.worlds.ogbench.maze:pointmaze_medium",
            "OGBench: a point in a maze of 26 cells",
            extra="ogbench",
        ),
        "pointmaze-large": Entry(
            "zol.worlds.ogbench.maze:pointmaze_large",
            "OGBench: a point in a maze of 46 cells",
            extra="ogbench",
        ),
        "antmaze-medium": Entry(
            "zol.worlds.ogbench.maze:antmaze_medium", "OGBench: an ant in a maze of 26 cells", extra="ogbench"
        ),
        "antmaze-large": Entry(
            "zol.worlds.ogbench.maze:antmaze_large", "OGBench: an ant in a maze of 46 cells", extra="ogbench"
        ),
        "cube-single": Entry(
            "zol.worlds.ogbench.cube:cube_single", "OGBench: a robot arm and one cube", extra="ogbench"
        ),
        "cube-double": Entry(
            "zol.worlds.ogbench.cube:cube_double", "OGBench: a robot arm and two cubes", extra="ogbench"
        ),
        "puzzle-3x3": Entry(
            "zol.worlds.ogbench.puzzle:puzzle_3x3", "OGBench: a robot arm and nine buttons", extra="ogbench"
        ),
        "humenv": Entry("zol.worlds.humenv:world", "the humanoid of Meta Motivo", extra="humenv"),
    },
)
ALIASES = {"pointmass": "point_mass_maze"}


def make(name: str) -> World:
    """Make the world of that name, or of that alias, without environments yet; a near miss is suggested."""
    known = ALIASES.get(name, name)
    if known not in WORLDS:
        raise DataError(unknown_name("world", name, [*WORLDS, *ALIASES]))
    return WORLDS[known]()
