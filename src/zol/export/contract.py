"""What a robot must know to use an exported policy: columns, scaling, rate, hash, measured parity."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from zol.common.errors import DataError
from zol.common.provenance import versions
from zol.export.parity import Parity
from zol.models.base import Model, layout_of


def check_numbers(
    rate: float | None, action_range: tuple[Sequence[float], Sequence[float]] | None, actions: int
) -> None:
    """What goes into the contract must be usable by a robot."""
    if rate is not None and not (0 < rate < math.inf):
        raise DataError(f"rate is {rate}; expected a control rate in Hz above 0")
    for values in action_range or ():
        if len(values) != actions:
            raise DataError(f"action_range has {len(values)} entries; the model has {actions} actions")
        if not all(math.isfinite(value) for value in values):
            raise DataError(f"action_range has NaN or infinite entries: {list(values)}")


def contract_of(
    model: Model,
    own: str,
    graphs: Sequence[str],
    parity: Parity,
    latency_ms: float,
    *,
    latent: Literal["input", "fixed"],
    rate: float | None,
    action_range: tuple[Sequence[float], Sequence[float]] | None,
) -> dict[str, Any]:
    """The contract as JSON; ``own`` is the model's hash."""
    layout = layout_of(model)
    config = getattr(model, "config", None)
    return {
        "schema": 1,
        "graphs": list(graphs),
        "model": {
            "hash": own,
            "source": getattr(config, "source", getattr(model, "kind", type(model).__name__)),
            "discount": model.discount,
        },
        "observation": {
            "input": "obs",
            "dim": model.obs_dim,
            "dtype": "float32",
            "normalisation": "inside the graph: feed raw observations",
            "fields": [asdict(f) for f in layout.fields],
        },
        "latent": {
            "input": "z" if latent == "input" else None,
            "dim": model.z_dim,
            "projection": "z must already lie where training put it; those in latents.json do",
        },
        "action": {
            "output": "action",
            "dim": model.action_dim,
            "range": [-1.0, 1.0],
            "low": None if action_range is None else list(action_range[0]),
            "high": None if action_range is None else list(action_range[1]),
            "scaling": "target = low + (action + 1) / 2 * (high - low)",
        },
        "rate_hz": rate,
        "parity": {
            "inputs": parity.inputs,
            "largest_difference": parity.difference,
            "onnx_from_float64": parity.onnx,
            "torch_from_float64": parity.torch,
        },
        "latency_ms": {"batch": 1, "threads": 1, "median": latency_ms},
        "versions": versions(),
    }
