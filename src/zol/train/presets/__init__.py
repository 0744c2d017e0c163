"""Settings that are known to work, as data: change a number in a file beside this one and nowhere else.

Every model has one file of presets (TOML). A table is a preset; ``[preset.worlds.NAME]`` holds what a world
needs beyond it, and with ``listed_worlds_only`` a preset exists for those worlds only:

    [cpu]
    steps = 8_000
    [cpu.worlds.donut]
    steps = 4_000

Settings are fields of ``TrainConfig`` and of the model's configuration, and ``dynamics_steps``. A world's
own discount counts where none is named. By convention ``cpu`` trains on two cores within an hour, and
``paper`` has the published settings.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from zol.common.errors import DataError, ZolError, unknown_name

DEFAULT, PUBLISHED = "cpu", "paper"
ONLY, WORLDS = "listed_worlds_only", "worlds"


def read(resource: str) -> dict[str, Any]:
    """The presets of a file, named by package and file: ``zol.train.presets:fb.toml``."""
    package, _, name = resource.partition(":")
    try:
        return tomllib.loads((files(package) / name).read_text(encoding="utf-8"))
    except (ModuleNotFoundError, OSError) as error:
        raise ZolError(f"the presets {resource} are not installed: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ZolError(f"the presets {resource} are not valid TOML: {error}") from error


def choose(presets: Mapping[str, Any], preset: str, world: str | None, *, gpu: bool) -> str:
    """``auto``: the published settings where there are some and a GPU to train them on, else ``cpu``."""
    if preset == "auto":
        return PUBLISHED if gpu and world in presets.get(PUBLISHED, {}).get(WORLDS, {}) else DEFAULT
    if preset not in presets:
        raise DataError(unknown_name("preset", preset, ("auto", *presets)))
    return preset


def settings(presets: Mapping[str, Any], preset: str, world: str | None) -> dict[str, Any]:
    """Values by field name, of the loop and of the model."""
    table = presets[preset]
    worlds = table.get(WORLDS, {})
    if table.get(ONLY, False) and world not in worlds:
        if world is None:
            raise DataError(
                f"--preset {preset} differs between domains, and the data do not name their world"
            )
        raise DataError(
            f"--preset {preset}: " + unknown_name("domain with published settings", world, worlds)
        )
    own = {name: value for name, value in table.items() if name not in (ONLY, WORLDS)}
    return own | worlds.get(world, {})
