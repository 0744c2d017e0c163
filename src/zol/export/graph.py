"""The actor as an ONNX graph: with its latent as an input, or fixed."""

import logging
import warnings

import torch
from torch import Tensor, nn

from zol.common.errors import ZolError
from zol.models.base import Model


class Policy(nn.Module):
    """The actor with its latent as an input, or fixed."""

    z: Tensor | None

    def __init__(self, model: Model, z: Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("z", z)

    def forward(self, obs: Tensor, z: Tensor | None = None) -> Tensor:
        """Actions for observations, with the given latent or the fixed one."""
        latent = self.z if z is None else z
        assert latent is not None
        return self.model.act(obs, latent)


def to_onnx(policy: Policy, model: Model) -> bytes:
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
