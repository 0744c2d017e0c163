"""``zol doctor``: what is installed, what is missing, and the line that adds it."""

import importlib.util
import os
from importlib import metadata

import torch
from rich.table import Table

from zol import __version__
from zol.common.errors import install_line
from zol.common.provenance import commit, processor
from zol.common.terminal import terminal

CORE = ("torch", "numpy", "safetensors", "pydantic", "tyro", "rich", "matplotlib")
# package: (import name, extra, what it is for)
OPTIONAL = {
    "mujoco": ("mujoco", "dmc", "walker, cheetah, quadruped and maze"),
    "dm_control": ("dm_control", "dmc", "models of the control suite"),
    "gymnasium": ("gymnasium", "dmc", "single-environment view"),
    "ogbench": ("ogbench", "ogbench", "models of OGBench's mazes and table"),
    "h5py": ("h5py", "hdf5", "HDF5 datasets"),
    "minari": ("minari", "minari", "Minari datasets"),
    "onnxruntime": ("onnxruntime", "export", "ONNX policies"),
    "huggingface_hub": ("huggingface_hub", "hub", "models from the hub"),
    "tensorboard": ("tensorboard", "tensorboard", "learning curves in a browser"),
    "viser": ("viser", "play", "the page of zol play"),
    "wandb": ("wandb", "wandb", "learning curves on a server"),
    "imageio-ffmpeg": ("imageio_ffmpeg", "video", "videos"),
}


def doctor() -> None:
    """Show versions, extras, threads, device and rendering, and the line that fixes what is missing."""
    console = terminal()
    missing: list[str] = []
    table = Table("what", "found", "for", box=None, padding=(0, 3, 0, 0))
    table.add_row("zol", f"{__version__} ({commit()})", "")
    for package in CORE:
        table.add_row(package, _version(package) or "MISSING", "core")
        if _version(package) is None:
            missing.append("pip install -e . (in the folder you cloned)")
    for package, (module, extra, purpose) in OPTIONAL.items():
        found = _version(package) if importlib.util.find_spec(module) else None
        table.add_row(package, found or "–", purpose)
        if found is None:
            missing.append(install_line(extra))
    table.add_row("processor", f"{processor()}, {os.cpu_count()} cores", "")
    table.add_row("threads", f"{torch.get_num_threads()} (set OMP_NUM_THREADS to change)", "torch")
    table.add_row("device", _device(), "training")
    table.add_row("rendering", _rendering(missing), "frames and videos")
    console.print(table)
    console.print("\nnothing is missing" if not missing else "\nto add what is missing:")
    for line in dict.fromkeys(missing):
        console.print(f"  {line}", highlight=False, markup=False)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _device() -> str:
    if torch.cuda.is_available():
        return f"cuda: {torch.cuda.get_device_name(0)}"
    return "cpu (no CUDA device found)"


def _rendering(missing: list[str]) -> str:
    if importlib.util.find_spec("mujoco") is None:
        return "– (needs mujoco)"
    from zol.worlds.dmc.render import render_backend

    backend = render_backend()
    if backend is None:
        missing.append("apt-get install libegl1 libosmesa6    # headless rendering")
        return "–"
    return backend
