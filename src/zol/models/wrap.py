"""Any live network as a model: give the names of its methods, and it can be prompted, searched and run.

    model = wrap(net, obs_dim=24, action_dim=6, z_dim=50, discount=0.98,
                 backward="backward_map", forward="forward_map",
                 act=lambda net, obs, z: net.actor(obs, z, 0.2).mean)

Search needs gradients from the policy back to z. Published code often forbids them (``torch.no_grad``
as a decorator, on the very methods one must call), so the wrapper works on a view of the network in which
these decorators are taken off; weights are shared, and the original object is not changed.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zol.common.errors import CheckpointError, DataError
from zol.fields import Layout
from zol.models.base import Measure
from zol.models.layers import broadcast, unit

Method = str | Callable[..., Any]


def wrap(
    module: nn.Module,
    *,
    obs_dim: int,
    action_dim: int,
    z_dim: int,
    discount: float,
    backward: Method = "backward",
    forward: Method = "forward",
    act: Method = "act",
    project: Method | None = None,
    measure: Measure | None = None,
    layout: Layout | None = None,
) -> "Wrapped":
    """A model made of somebody's network.

    Each method is an attribute's name or a function that takes the network first: ``backward(net, obs)``,
    ``forward(net, obs, z, action)``, ``act(net, obs, z)``, ``project(net, z)`` (default: √d · z/‖z‖). They
    are called with two-dimensional batches ``[N, ·]``. ``forward`` may return ``[P, N, d]``, ``[N, d]`` or a
    tuple of ``[N, d]``; ``act`` may return actions or a distribution with a ``mean``.

    Shapes and gradients are tried out at once: an error here beats a latent that silently never moves.
    """
    facts = {"obs_dim": obs_dim, "action_dim": action_dim, "z_dim": z_dim}
    for name, value in facts.items():
        if value < 1:
            raise DataError(f"{name} is {value}; expected a positive number")
    if not 0 < discount < 1:
        raise DataError(f"discount is {discount}; expected a number between 0 and 1")
    methods = {"backward": backward, "forward": forward, "act": act, "project": project}
    model = Wrapped(module, methods, facts, discount, measure or Measure(), layout)
    _try_out(model)
    return model


class Wrapped(nn.Module):
    """See :func:`wrap`. Satisfies ``zol.models.Model``; its weights are the original's."""

    kind = "wrapped"

    def __init__(
        self,
        module: nn.Module,
        methods: dict[str, Method | None],
        facts: dict[str, int],
        discount: float,
        measure: Measure,
        layout: Layout | None,
    ) -> None:
        super().__init__()
        self.inner = differentiable(module).eval()
        self.obs_dim, self.action_dim, self.z_dim = facts["obs_dim"], facts["action_dim"], facts["z_dim"]
        self.discount, self.measure = discount, measure
        self.layout = layout if layout is not None else Layout.plain(self.obs_dim)
        self._methods = {name: _bind(self.inner, m) for name, m in methods.items() if m is not None}

    def _call(self, name: str, *inputs: Tensor) -> Any:
        """Call the original with rows ``[N, ·]``: most published code takes exactly one batch dimension."""
        rows = [part.reshape(-1, part.shape[-1]) for part in broadcast(*inputs)]
        return self._methods[name](*rows)

    def backward(self, obs: Tensor) -> Tensor:
        """B(s), ``[..., d]``."""
        out: Tensor = self._call("backward", obs)
        return out.reshape(*obs.shape[:-1], -1)

    def forward(self, obs: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z), ``[P, ..., d]``."""
        out = self._call("forward", obs, z, action)
        members: Tensor = torch.stack(tuple(out)) if isinstance(out, tuple | list) else out
        lead = torch.broadcast_shapes(obs.shape[:-1], z.shape[:-1], action.shape[:-1])
        members = members if members.ndim == 3 else members.unsqueeze(0)
        return members.reshape(members.shape[0], *lead, -1)

    def act(self, obs: Tensor, z: Tensor) -> Tensor:
        """The mean action of π_z, ``[..., A]``."""
        out = self._call("act", obs, z)
        action: Tensor = out if isinstance(out, Tensor) else out.mean
        return action.reshape(*torch.broadcast_shapes(obs.shape[:-1], z.shape[:-1]), -1)

    def project(self, z: Tensor) -> Tensor:
        """Π(z), ``[..., d]``."""
        if "project" not in self._methods:
            return unit(z)
        out: Tensor = self._call("project", z)
        return out.reshape(z.shape)


def differentiable(module: nn.Module) -> nn.Module:
    """A view of a module, weights shared, whose methods are no longer decorated with ``no_grad``.

    Instance attributes come before class attributes, so a copy of the object that carries the undecorated
    methods is enough; the copy shares the dictionaries of parameters and buffers with the original.
    """
    view = copy.copy(module)
    view.__dict__["_modules"] = {
        name: None if child is None else differentiable(child) for name, child in module._modules.items()
    }
    for name in dir(type(module)):
        method = inspect.getattr_static(type(module), name)
        if inspect.isfunction(method) and _forbids_gradients(method):
            view.__dict__[name] = inspect.unwrap(method, stop=lambda f: not _forbids_gradients(f)).__get__(
                view
            )
    return view


def _forbids_gradients(function: Any) -> bool:
    """Is this torch's wrapper around a function, as ``@torch.no_grad()`` or ``inference_mode`` make it?"""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_name == "decorate_context" and hasattr(function, "__wrapped__")


def _bind(module: nn.Module, method: Method) -> Callable[..., Any]:
    if not isinstance(method, str):
        return lambda *inputs: method(module, *inputs)
    found = getattr(module, method, None)
    if not callable(found):
        raise CheckpointError(
            f"a {type(module).__name__} has no method '{method}': name another, or pass a function"
        )
    return found


def _try_out(model: Wrapped) -> None:
    """One small pass through every method: shapes, then gradients to z through the policy and through F."""
    generator = torch.Generator().manual_seed(0)
    parameter = next(model.parameters(), torch.zeros(()))
    draw = {"generator": generator, "dtype": torch.float32}
    obs = torch.randn(3, model.obs_dim, **draw).to(parameter)  # type: ignore[call-overload]
    raw = torch.randn(2, 1, model.z_dim, **draw).to(parameter)  # type: ignore[call-overload]
    with torch.enable_grad():
        z = model.project(raw).detach().requires_grad_(True)
        action = model.act(obs, z)
        F = model.forward(obs, z, action)
        B = model.backward(obs)
        for name, got, expected in (
            ("act", action.shape, (2, 3, model.action_dim)),
            ("forward", F.shape[1:], (2, 3, model.z_dim)),
            ("backward", B.shape, (3, model.z_dim)),
        ):
            if tuple(got) != expected:
                raise CheckpointError(
                    f"{name} gave shape {tuple(got)} for 2 latents × 3 states; expected {expected}"
                )
        for name, value in (("act", action), ("forward", F)):
            if not _reaches(value, z):
                raise CheckpointError(
                    f"no gradient flows from {name} back to z, so latents could not be searched. "
                    "A `with torch.no_grad():` or .detach() inside the method blocks it: pass a function "
                    f"that calls the network underneath, e.g. {name}=lambda net, obs, z, …: net.net(…)"
                )


def _reaches(value: Tensor, z: Tensor) -> bool:
    if not value.requires_grad:
        return False
    weights = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype, device=value.device)
    (gradient,) = torch.autograd.grad(
        (value.flatten() * weights).sum(), z, retain_graph=True, allow_unused=True
    )
    return gradient is not None and bool(gradient.abs().sum() > 0) and bool(torch.isfinite(gradient).all())
