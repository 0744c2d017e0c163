"""Where data come from: facts every stored set carries, so that nobody has to guess later."""

import platform
import shlex
import sys
from importlib import metadata
from typing import Any

PACKAGES = ("zol", "torch", "numpy", "mujoco", "dm_control")


def provenance(source: str, **facts: Any) -> dict[str, Any]:
    """The source of a set, the versions installed now, the command that ran, and further ``facts``."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    # The name of the program, not its path: where someone's home folder lies is no property of data.
    program = "zol" if sys.argv[0].endswith(("zol", "zol.exe")) else "python"
    command = shlex.join([program, *sys.argv[1:]]) if program == "zol" else ""
    known = {name: value for name, value in facts.items() if value is not None}
    return {"source": source, **known, "versions": versions, **({"command": command} if command else {})}
