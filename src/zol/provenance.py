"""Where a number came from: command, commit, versions, hardware."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch


def provenance() -> dict[str, str]:
    """The facts that every reported number carries."""
    from zol import __version__

    return {
        "command": " ".join(["zol", *sys.argv[1:]]),
        "commit": commit(),
        "zol": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
    }


def commit() -> str:
    """The commit of the source tree zol runs from, with ``+`` for local changes; 'installed' without one."""
    here = Path(__file__).parent
    try:
        name = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", "."], cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "installed"
    return name + ("+" if changed else "")


def processor() -> str:
    """The processor's name, as well as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
