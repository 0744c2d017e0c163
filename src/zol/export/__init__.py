"""The policy for a robot: the actor as ONNX, the latents, and a contract that says how to use them.

    policy.onnx      obs [batch, D], z [batch, d] → action [batch, A]      z as an input (default)
    policy-NAME.onnx obs [batch, D] → action [batch, A]                    z fixed, one file per latent
    latents.json     the latents, with the task, method and model each was made for
    contract.json    observation columns, normalisation, action scaling, rate, model hash, measured parity

The graph takes raw observations: normalisation is inside it. It is compared with the actor on thousands of
inputs before anything is kept (:mod:`zol.export.parity`), because an exported policy that differs is found
out on hardware.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from zol.common.errors import DataError, ZolError
from zol.common.extras import require
from zol.common.files import write_bytes
from zol.common.outputs import require_place
from zol.common.tensors import check_finite
from zol.export.contract import check_numbers, contract_of
from zol.export.graph import Policy, to_onnx
from zol.export.parity import Parity, compare
from zol.models.base import Latent, Model, model_hash

INPUTS = 10_000


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it does."""

    folder: Path
    graphs: tuple[str, ...]
    parity: Parity  # of the graph that is farthest from float64
    latency_ms: float  # of the slowest graph: median time of one action, batch 1, one thread


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
    check_numbers(rate, action_range, model.action_dim)
    own = model_hash(model)
    z = [latent.require(own, model.z_dim) for latent in latents]
    names = _file_names(latents)
    if fixed and not latents:
        raise DataError("a fixed latent was asked for and none given: pass latents=[…]")
    path = require_place(folder)
    require_onnx()
    seen = _observations(model, obs)
    parities, graphs = [], {}
    for name, latent in zip(names, z, strict=True) if fixed else [("policy", None)]:
        policy = Policy(model, latent).eval()
        data = to_onnx(policy, model)
        parity = compare(policy, data, seen, model)
        if not parity.holds:
            raise ZolError(
                f"{name} was not written: {parity}. "
                "Does the actor behave differently in evaluation mode, or draw random numbers?"
            )
        parities.append(parity)
        graphs[f"{name}.onnx"] = data
    worst = max(parities, key=lambda parity: parity.onnx)
    result = Exported(path, tuple(graphs), worst, max(parity.latency_ms for parity in parities))
    contract = contract_of(
        model, own, result.graphs, worst, result.latency_ms,
        latent="fixed" if fixed else "input", rate=rate, action_range=action_range,
    )  # fmt: skip
    # The contract goes first and comes last: one that is there describes the files beside it, even if this
    # process is killed while it writes over an earlier export.
    (path / "contract.json").unlink(missing_ok=True)
    for name, data in graphs.items():
        write_bytes(path / name, data)
    _write_latents(path, latents, names)
    write_bytes(path / "contract.json", (json.dumps(contract, indent=2, allow_nan=False) + "\n").encode())
    return result


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


def _write_latents(path: Path, latents: Sequence[Latent], names: Sequence[str]) -> None:
    rows = [
        {"name": name.removeprefix("policy-")} | latent.checked(f"the latent for '{latent.task}'").as_json()
        for name, latent in zip(names, latents, strict=True)
    ]
    write_bytes(path / "latents.json", (json.dumps(rows, indent=2, allow_nan=False) + "\n").encode())
