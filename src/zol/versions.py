"""What is installed: the versions that checkpoints and datasets carry with them."""

import platform
from importlib import metadata

PACKAGES = ("zol", "torch", "numpy", "mujoco", "dm_control")


def versions() -> dict[str, str]:
    """Python and the packages on which results depend, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
