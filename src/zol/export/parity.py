"""Whether a graph computes what the actor computes, measured against the actor in float64.

A float32 network is itself away from the exact result by its rounding, and two orders of summation round
differently. So neither torch's float32 nor ONNX's is the truth: both are compared with the same actor in
float64, and a graph is accepted if

    |ONNX − float64| ≤ max(10⁻⁵, 2 · |torch float32 − float64|)        (largest entry over all inputs)

as long as torch's own distance is small enough to be rounding. NaN is never accepted. An actor whose code
insists on float32 has no such reference; its graph must be within 10⁻⁵ of torch.
"""

import copy
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.export.graph import Policy
from zol.models.base import Model

TOLERANCE = 1e-5
ROUNDING = 1e-3  # what lies farther from float64 is another function, not rounding
CALLS = 200  # timed calls for one action


@dataclass(frozen=True)
class Parity:
    """Largest distances from the actor in float64, and how long one action takes."""

    inputs: int
    difference: float  # largest between ONNX and torch's float32
    onnx: float
    torch: float
    latency_ms: float  # median of one action, batch 1, one thread

    @property
    def allowed(self) -> float:
        """How far ONNX may be from float64."""
        return max(TOLERANCE, 2 * self.torch)

    @property
    def holds(self) -> bool:
        """Whether the graph computes what the actor does; NaN does not."""
        return self.torch <= ROUNDING and self.onnx <= self.allowed

    def __str__(self) -> str:
        return (
            f"ONNX is {self.onnx:.2g} away from float64 (allowed: {self.allowed:.2g}), torch's own float32 "
            f"{self.torch:.2g} (largest of {self.inputs:,} inputs)"
        )


def compare(policy: Policy, data: bytes, obs: Tensor, model: Model) -> Parity:
    """Run the graph, the actor and the actor in float64 on the same inputs."""
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
        own = policy(*inputs).double().numpy()
    truth = _exact(policy, inputs)
    truth = own if truth is None else truth
    found = session.run(None, feed)[0].astype(np.float64)
    difference, onnx, rounding = (
        float(np.abs(one - other).max()) for one, other in ((found, own), (found, truth), (own, truth))
    )
    return Parity(len(obs), difference, onnx, rounding, _latency(session, feed))


def _exact(policy: Policy, inputs: list[Tensor]) -> NDArray[np.float64] | None:
    """The actor in float64, or None for one whose own code insists on float32."""
    try:
        exact = copy.deepcopy(policy).double()
        with torch.no_grad():
            found: NDArray[np.float64] = exact(*(values.double() for values in inputs)).double().numpy()
    except RuntimeError:  # torch's for operands of two types
        return None
    return found


def _latency(session: object, feed: dict[str, NDArray[np.float32]]) -> float:
    """Median time of one action, in ms."""
    one = {name: values[:1] for name, values in feed.items()}
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        session.run(None, one)  # type: ignore[attr-defined]  # onnxruntime has no types
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)
