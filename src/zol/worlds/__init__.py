"""Where behaviour happens: batched simulators, made by name."""

from importlib import import_module

from zol.common.errors import DataError, MissingExtra, unknown_name
from zol.worlds.base import World, find_task

__all__ = ["ALIASES", "WORLDS", "World", "find_task", "make"]

# name: (constructor, imported only when it is called; the extra that installs what it needs)
WORLDS: dict[str, tuple[str, str]] = {
    "donut": ("zol.worlds.donut:Donut", ""),
    "four_rooms": ("zol.worlds.tabular:four_rooms", ""),
    "walker": ("zol.worlds.dmc.walker:world", "dmc"),
    "cheetah": ("zol.worlds.dmc.cheetah:world", "dmc"),
    "quadruped": ("zol.worlds.dmc.quadruped:world", "dmc"),
    "point_mass_maze": ("zol.worlds.dmc.maze:world", "dmc"),
    "humenv": ("zol.worlds.humenv:world", "humenv"),
}
ALIASES = {"pointmass": "point_mass_maze"}


def make(name: str) -> World:
    """The world of that name, without environments yet; a near miss is suggested."""
    known = ALIASES.get(name, name)
    if known not in WORLDS:
        raise DataError(unknown_name("world", name, [*WORLDS, *ALIASES]))
    where, extra = WORLDS[known]
    module, constructor = where.split(":")
    try:
        world: World = getattr(import_module(module), constructor)()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("zol"):
            raise
        raise MissingExtra(missing.name, extra, f"the world '{known}'") from missing
    return world
