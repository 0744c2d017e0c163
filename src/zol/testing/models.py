"""A public contract check for models: run it on your own."""

import torch
from torch import Tensor

from zol.models.base import Model


def check_model(model: Model, obs: Tensor | None = None, *, seed: int = 0) -> None:
    """Check that a model keeps the promises that prompting, adaptation and rollouts rely on.

    Raises AssertionError with the broken promise. ``obs`` ``[N, D]`` are observations to try it on, where
    Gaussian ones make no sense.
    """
    g = torch.Generator().manual_seed(seed)
    tensors = model.state_dict().values() if isinstance(model, torch.nn.Module) else ()
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=dtype)

    obs = draw(7, model.obs_dim) if obs is None else obs.to(dtype)
    samples, z = len(obs), model.project(draw(3, model.z_dim))
    _check_project(model, z)
    with torch.no_grad():
        B = model.backward(obs)
        action = model.act(obs, z.unsqueeze(1))  # [3, samples, A]
        F = model.forward(obs, z.unsqueeze(1), action)
        assert B.shape == (samples, model.z_dim), f"backward gives [N, d], got {tuple(B.shape)}"
        assert action.shape == (3, samples, model.action_dim), "act broadcasts latents against states"
        assert F.shape[1:] == (3, samples, model.z_dim), "forward gives [P, ..., d]"
        assert all(bool(x.isfinite().all()) for x in (B, action, F)), "outputs are finite"
        assert bool((action.abs() <= 1 + 1e-6).all()), "actions are normalised to [−1, 1]"
        assert torch.equal(action, model.act(obs, z.unsqueeze(1))), "act is deterministic: the mean action"
        deep = model.backward(obs.reshape(1, samples, 1, -1))
        assert deep.shape == (1, samples, 1, model.z_dim), "leading dimensions are free"
        for k in range(3):
            alone = model.forward(obs, z[k].expand(samples, -1), model.act(obs, z[k].expand(samples, -1)))
            assert torch.allclose(alone, F[:, k], rtol=1e-4, atol=1e-5), "a row does not depend on the batch"
    _check_gradients(model, obs, z)
    assert 0 < model.discount < 1, "the discount lies strictly between 0 and 1"


def _check_project(model: Model, z: Tensor) -> None:
    assert torch.allclose(model.project(z), z, rtol=1e-5, atol=1e-6), "projecting twice is projecting once"
    zero = model.project(torch.zeros_like(z))
    assert bool(zero.isfinite().all()), "projecting the zero latent gives no NaN"


def _check_gradients(model: Model, obs: Tensor, z: Tensor) -> None:
    leaf = z[0].clone().requires_grad_()
    action = model.act(obs, leaf.unsqueeze(0))
    through_actor = _gradient(action.square().sum(), leaf)
    assert through_actor is not None, "act is differentiable in z"
    assert bool(through_actor.abs().max() > 0), "the gradient of act reaches z"
    total = model.forward(obs, leaf.unsqueeze(0), action.detach()).sum()
    through_forward = _gradient(total, leaf)
    assert through_forward is not None, "forward is differentiable in z"
    assert bool(through_forward.isfinite().all()), "gradients are finite"


def _gradient(value: Tensor, leaf: Tensor) -> Tensor | None:
    """The gradient, or None if the value does not depend on the leaf at all."""
    if not value.requires_grad:
        return None
    return torch.autograd.grad(value, leaf, retain_graph=True, allow_unused=True)[0]
