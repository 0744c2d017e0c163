"""The policy for a robot: the actor as ONNX, the latents, and a contract that says how to use them.

    policy.onnx      obs [batch, D], z [batch, d] → action [batch, A]      z as an input (default)
    policy-NAME.onnx obs [batch, D] → action [batch, A]                    z fixed, one file per latent
    latents.json     the latents, with the task, method and model each was made for
    contract.json    observation columns, normalisation, action scaling, rate, model hash, measured parity

The graph takes raw observations: normalisation is inside it. It is run once against torch on thousands of
random inputs before anything is kept, because an exported policy that differs is found out on hardware.
"""

import json
import logging
import math
import re
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zol.common.errors import DataError, ZolError
from zol.common.extras import require
from zol.common.files import write_bytes
from zol.common.outputs import require_place
from zol.common.provenance import versions
from zol.common.tensors import check_finite
from zol.models.base import Latent, Model, layout_of, model_hash

TOLERANCE = 1e-5
INPUTS = 10_000


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it does."""

    folder: Path
    graphs: tuple[str, ...]
    error: float  # largest difference between ONNX and torch, over all graphs
    latency_ms: float  # median time of one action, batch 1, one thread


class _Policy(nn.Module):
    """The actor with its latent as an input, or fixed."""

    z: Tensor | None

    def __init__(self, model: Model, z: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("z", z)

    def forward(self, obs: Tensor, z: Tensor | None = None) -> Tensor:
        latent = self.z if z is None else z
        assert latent is not None
        return self.model.act(obs, latent)


def export(
    model: nn.Module,
    folder: str | Path,
    latents: Sequence[Latent] = (),
    *,
    fixed: bool = False,
    rate: float | None = None,
    action_range: tuple[Sequence[float], Sequence[float]] | None = None,
    obs: Tensor | None = None,
) -> Exported:
    """Write the actor, its latents and the contract into a folder.

    ``fixed`` bakes each latent into a graph of its own. ``rate`` is the control rate in Hz that the model
    was trained at; ``action_range`` the joint targets (low, high) that −1 and 1 stand for. ``obs``
    ``[N, D]`` are observations to check parity on; random ones are used without them.
    """
    if not isinstance(model, Model):
        raise DataError(f"{type(model).__name__} is not a zol model: wrap it first (zol.wrap)")
    _check_numbers(rate, action_range, model.action_dim)
    own = model_hash(model)
    z = [latent.require(own, model.z_dim) for latent in latents]
    names = _file_names(latents)
    if fixed and not latents:
        raise DataError("a fixed latent was asked for and none given: pass latents=[…]")
    path = require_place(folder)
    require_onnx()
    seen = _observations(model, obs)
    errors, speeds, graphs = [], [], {}
    for name, latent in zip(names, z, strict=True) if fixed else [("policy", None)]:
        policy = _Policy(model, latent).eval()
        data = _to_onnx(policy, model)
        error, latency = _compare(policy, data, seen, model)
        if not error <= TOLERANCE:  # NaN is a failure, too
            raise ZolError(
                f"{name}: ONNX and torch differ by {error:.2g} (allowed: {TOLERANCE:g}); it was not written. "
                "Does the actor behave differently in evaluation mode, or draw random numbers?"
            )
        errors.append(error)
        speeds.append(latency)
        graphs[f"{name}.onnx"] = data
    result = Exported(path, tuple(graphs), max(errors), max(speeds))
    contract = _contract(model, own, result, fixed, rate, action_range, len(seen))
    # The contract goes first and comes last: one that is there describes the files beside it, even if this
    # process is killed while it writes over an earlier export.
    (path / "contract.json").unlink(missing_ok=True)
    for name, data in graphs.items():
        write_bytes(path / name, data)
    _write_latents(path, latents, names)
    write_bytes(path / "contract.json", (json.dumps(contract, indent=2, allow_nan=False) + "\n").encode())
    return result


def _check_numbers(
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


def _file_names(latents: Sequence[Latent]) -> list[str]:
    names = [
        "policy-" + re.sub(r"[^A-Za-z0-9.]+", "-", f"{latent.task}-{latent.method}").strip("-")
        for latent in latents
    ]
    return [
        name if names.count(name) == 1 else f"{name}-{names[:i].count(name)}" for i, name in enumerate(names)
    ]


def _observations(model: Model, obs: Tensor | None) -> Tensor:
    if obs is None:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(INPUTS, model.obs_dim, generator=generator)
    if obs.ndim != 2 or obs.shape[1] != model.obs_dim or len(obs) == 0:
        raise DataError(f"observations have shape {tuple(obs.shape)}; expected [N, {model.obs_dim}]")
    seen = obs.float()
    check_finite(seen, "the observations to compare on")
    return seen


def require_onnx() -> None:
    """Stop if the packages that write and run ONNX are missing."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        require(package, "export", "Writing ONNX")


def _to_onnx(policy: _Policy, model: Model) -> bytes:
    """The graph, with a free batch size."""
    names = ["obs"] if policy.z is not None else ["obs", "z"]
    example = tuple(torch.zeros(2, model.obs_dim if name == "obs" else model.z_dim) for name in names)
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it reports every optional package that is not there
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # the exporter warns about torch's own internals
            program = torch.onnx.export(
                policy,
                example,
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=["action"],
                dynamic_shapes=tuple({0: batch} for _ in names),
            )
    finally:
        log.setLevel(level)
    if program is None:
        raise ZolError("torch gave no ONNX program for this actor")
    return bytes(program.model_proto.SerializeToString())


def _compare(policy: _Policy, data: bytes, obs: Tensor, model: Model) -> tuple[float, float]:
    """Largest difference from torch over the inputs, and the median latency of one action in ms."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feed: dict[str, NDArray[np.float32]] = {"obs": obs.numpy()}
    inputs = [obs]
    if policy.z is None:
        generator = torch.Generator().manual_seed(1)
        z = model.project(torch.randn(len(obs), model.z_dim, generator=generator))
        feed["z"] = z.numpy()
        inputs.append(z)
    with torch.no_grad():
        expected = policy(*inputs).numpy()
    error = float(np.abs(session.run(None, feed)[0] - expected).max())
    one = {name: values[:1] for name, values in feed.items()}
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        session.run(None, one)
        times.append(time.perf_counter() - begin)
    return error, 1000 * statistics.median(times)


def _write_latents(path: Path, latents: Sequence[Latent], names: Sequence[str]) -> None:
    rows = [
        {"name": name.removeprefix("policy-")} | latent.checked(f"the latent for '{latent.task}'").as_json()
        for name, latent in zip(names, latents, strict=True)
    ]
    write_bytes(path / "latents.json", (json.dumps(rows, indent=2, allow_nan=False) + "\n").encode())


def _contract(
    model: Model,
    own: str,
    result: Exported,
    fixed: bool,
    rate: float | None,
    action_range: tuple[Sequence[float], Sequence[float]] | None,
    checked: int,
) -> dict[str, Any]:
    layout = layout_of(model)
    config = getattr(model, "config", None)
    return {
        "schema": 1,
        "graphs": list(result.graphs),
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
            "input": None if fixed else "z",
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
        "parity": {"inputs": checked, "largest_difference": result.error},
        "latency_ms": {"batch": 1, "threads": 1, "median": result.latency_ms},
        "versions": versions(),
    }
