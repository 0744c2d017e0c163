"""Choose a device that exists, and a number of threads that helps."""

import os

import torch

from zol.common.errors import ZolError

# Below this many multiply-adds per layer and step a second thread gains less than it costs.
WORTH_A_THREAD = 256 * 256 * 256


class DeviceError(ZolError, RuntimeError):
    """A device that this machine, or this build of torch, does not have."""


def choose_device(name: str) -> torch.device:
    """``auto`` (the first GPU, else the CPU), ``cpu``, ``cuda``, ``cuda:1`` … or ``mps``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f"no device is called '{name}': auto, cpu, cuda, cuda:0 … or mps") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        why = "is built without CUDA" if torch.version.cuda is None else "finds no CUDA device"
        raise DeviceError(
            f"--device {name}: torch {torch.__version__} {why}; --device cpu trains here, or install a CUDA "
            "build of torch (pytorch.org) on a machine with an NVIDIA GPU"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = ", ".join(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        raise DeviceError(f"--device {name} does not exist; this machine has {found}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(f"--device {name}: this machine has no Apple GPU that torch can use; --device cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f"--device {name} is not supported: auto, cpu, cuda, cuda:0 … or mps")
    return device


def choose_threads(work: int, asked: int = 0) -> int:
    """Threads for updates whose largest layer does ``work`` multiply-adds; ``asked`` if it is given.

    One for small layers. Otherwise the cores that this process may use and that others leave free, shared by
    the processes of torchrun: a thread too many waits, spinning, for a core at the end of every operation.
    """
    if asked > 0:
        return asked
    if work < WORTH_A_THREAD:
        return 1
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(1, (mine - busy) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
