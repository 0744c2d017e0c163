"""What ``init_kwargs.json`` says about observations and actions; its pickled twin is never opened."""

from pathlib import Path
from typing import Any

from zol.common.errors import CheckpointError
from zol.common.reading import read_json
from zol.common.tensors import TensorFile
from zol.models.foreign.section import Section


def read_spaces(folder: Path) -> Section | None:
    """The space description beside the weights, if it is there as JSON."""
    path = folder / "init_kwargs.json"
    return Section(read_json(path), path.name) if path.is_file() else None


def box_size(space: Section) -> int:
    """Columns of a one-dimensional Box."""
    space.choice("type", None, ("Box",))
    shape: Any = space.values.get("shape", None)
    if shape is None:  # old files leave it out
        low = space.values.get("low")
        shape = [len(low)] if isinstance(low, list) else None
    if not isinstance(shape, list) or len(shape) != 1 or type(shape[0]) is not int:
        raise CheckpointError(
            f"{space.where}.shape is {str(shape)[:80]}: only vectors are supported, images are not"
        )
    return shape[0]


def columns(weights: TensorFile, name: str) -> int:
    """The input width of a stored linear layer, for folders that describe their spaces by pickle only."""
    shape = weights.shapes.get(name, ())
    if len(shape) != 2:
        raise CheckpointError(f"{weights.path}: '{name}' is missing (expected a matrix)")
    return shape[1]


def actions(weights: TensorFile) -> int:
    """The output width of the actor: rows of its last layer."""
    prefix = "_actor.policy."
    layers = [
        (int(index), shape[0])
        for name, shape in weights.shapes.items()
        if name.startswith(prefix) and len(shape) >= 1
        for index in [name.removeprefix(prefix).split(".")[0]]
        if index.isascii()
        and index.isdigit()
        and len(index) < 4
        and name.endswith(".weight")
        and len(shape) == 2
    ]
    if not layers:
        raise CheckpointError(f"{weights.path}: no tensor '{prefix}….weight', so this model has no actor")
    return max(layers)[1]
