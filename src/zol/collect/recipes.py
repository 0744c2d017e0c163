"""Which script follows which recipe."""

from pathlib import Path
from typing import get_args

from zol.collect.navigation import MazeHow, Navigator
from zol.collect.play import player
from zol.collect.scripted import Script
from zol.common.errors import DataError, unknown_name
from zol.worlds.base import World

RECIPES = (*get_args(MazeHow), "play")


def recipe(world: World, how: str, expert: Path | None = None) -> Script:
    """The script of a recipe's name in a world."""
    if how == "play":
        if expert is not None:
            raise DataError("--expert is an ant that walks, and --how play has no use for it")
        return player(world)
    if how in ("navigate", "stitch", "explore"):
        return Navigator(world, how, expert)  # type: ignore[arg-type]
    raise DataError(unknown_name("recipe", how, RECIPES))
