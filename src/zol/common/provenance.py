"""Provenance of data and numbers: versions, command, commit and hardware."""

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from zol.common.version import VERSION

PACKAGES = ("torch", "numpy", "mujoco", "dm_control")


def versions() -> dict[str, str]:
    """Python and the packages on which results depend, as far as they are installed."""
    found = {"python": platform.python_version(), "zol": VERSION}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def command() -> str | None:
    """The ``zol`` command that is running, if it is one."""
    program = Path(sys.argv[0])
    if program.stem != "zol" and program.parts[-2:] != ("zol", "__main__.py"):
        return None
    # The name of the program, not its path: where someone's home folder lies is no property of data.
    words = shlex.join(["zol", *sys.argv[1:]])
    # A path may be no text; what is kept must be, or a store and a model card could not take it.
    return words.encode(errors="backslashreplace").decode()


def of_data(source: str, **facts: Any) -> dict[str, Any]:
    """What a stored set carries: its source, further ``facts``, versions, and the command."""
    found = {"source": source, **facts, "versions": versions(), "command": command()}
    return {name: value for name, value in found.items() if value is not None}


def of_numbers() -> dict[str, Any]:
    """What every reported number carries."""
    import torch

    threads = torch.get_num_threads()
    return {
        "command": command() or "called from Python",
        "commit": commit(),
        "cpu": f"{processor()}, {os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)}",
        **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        **versions(),
    }


def commit() -> str:
    """The commit of the source tree zol runs from, with ``+`` for local changes; 'installed' without one."""
    here = Path(__file__).parents[1]  # the package: changes anywhere in it count

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "installed"


def processor() -> str:
    """The processor's name, as well as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
