"""The sample of states that travels with a checkpoint (``prompt.safetensors``), checked on both ways.

obs [N, D], starts [S, D]                                        always
action [N, A], physics [N, ·], before [N, D], terminated [N]     as far as there are any
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from zol.common.errors import CheckpointError
from zol.common.tensors import check_finite, converted, open_tensors, write_tensors

SAMPLE_LIMIT = 512 << 20  # bytes; ten thousand states of a humanoid take thirty million
DTYPES = {name: torch.float32 for name in ("obs", "starts", "action", "before")}
DTYPES |= {"physics": torch.float64, "terminated": torch.bool}


def read_sample(path: Path, obs_dim: int, action_dim: int) -> dict[str, Tensor]:
    """The tensors of a sample; names and shapes are checked before they are read, types and values then."""
    with open_tensors(path, SAMPLE_LIMIT) as file:
        _check(file.shapes, obs_dim, action_dim, path)
        return {name: file.read(name, DTYPES.get(name), own=False) for name in file.shapes}


def write_sample(
    path: Path, sample: Mapping[str, Tensor], obs_dim: int, action_dim: int
) -> dict[str, Tensor]:
    """Write a sample that :func:`read_sample` will read, and return it as it was written."""
    _check({name: tuple(tensor.shape) for name, tensor in sample.items()}, obs_dim, action_dim, path)
    ready = {n: converted(tensor, DTYPES.get(n, tensor.dtype), n, path) for n, tensor in sample.items()}
    for name, tensor in ready.items():
        check_finite(tensor, f"'{name}' of the sample for {path}")
    write_tensors(path, ready)
    return ready


def _check(shapes: Mapping[str, tuple[int, ...]], obs_dim: int, action_dim: int, path: Path) -> None:
    columns = {"obs": obs_dim, "starts": obs_dim, "action": action_dim, "before": obs_dim, "physics": None}
    for name in ("obs", "starts"):
        if name not in shapes:
            raise CheckpointError(f"{path} lacks '{name}': a sample has states ('obs') and 'starts'")
    rows = shapes["obs"][:1]
    for name in sorted(shapes, key=lambda name: name != "obs"):  # which the others are compared with
        shape = shapes[name]
        if name == "terminated":
            fits, expected = shape == rows, "[N]"
        elif name in columns:
            width = columns[name]
            fits = len(shape) == 2 and min(shape) > 0 and width in (None, shape[1])
            fits = fits and (name == "starts" or shape[:1] == rows)
            expected = f"[{'S' if name == 'starts' else 'N'}, {'columns' if width is None else width}]"
        else:  # somebody's own: nothing here asks for it
            continue
        if not fits:
            raise CheckpointError(
                f"{path}: '{name}' has shape {list(shape)}; expected {expected} for this model, with as many "
                "rows N as 'obs' has, and at least one"
            )
