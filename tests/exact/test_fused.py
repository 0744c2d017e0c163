"""The fused tanh(LayerNorm) of the towers is the plain formula, with its first and second derivatives."""

import pytest
import torch
from torch.nn import functional

from zol.models.fused import norm_tanh
from zol.models.layers import initialise
from zol.models.nets import ForwardMap

SHAPES = {"two members": ((2, 5, 7), (2, 1, 7)), "one member": ((3, 5, 7), (7,)), "one row": ((7,), (7,))}


def inputs(case: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(0)
    rows, weights = SHAPES[case]
    shapes = (rows, weights, weights)
    return tuple(torch.randn(s, generator=g, dtype=dtype).requires_grad_() for s in shapes)


def plain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.tanh(functional.layer_norm(x, x.shape[-1:]) * weight + bias)


@pytest.mark.parametrize("case", SHAPES)
def test_fused_equals_plain(case: str) -> None:
    exact = inputs(case, torch.float64)
    torch.testing.assert_close(norm_tanh(*exact), plain(*exact), rtol=0, atol=1e-14)
    single = inputs(case, torch.float32)
    torch.testing.assert_close(norm_tanh(*single), plain(*single), rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", SHAPES)
def test_derivatives(case: str) -> None:
    assert torch.autograd.gradcheck(norm_tanh, inputs(case, torch.float64))
    assert torch.autograd.gradgradcheck(norm_tanh, inputs(case, torch.float64))


def test_no_gradient_is_computed_that_nobody_wants() -> None:
    x, weight, bias = inputs("two members", torch.float64)
    norm_tanh(x, weight.detach(), bias.detach()).sum().backward()
    assert x.grad is not None
    assert weight.grad is None


def test_saturated_inputs_stay_finite() -> None:
    weight, bias = torch.full((4,), 1e6), torch.zeros(4)
    y = norm_tanh(torch.randn(8, 4), weight, bias)
    assert y.abs().max() == 1


def test_layers_keep_the_numbers_of_published_files() -> None:
    names = set(ForwardMap(3, 2, 4, 4, hidden=8, layers=1).state_dict())
    tower = {f"embed_z.{layer}.{kind}" for layer in (0, 1, 3) for kind in ("weight", "bias")}
    assert {name for name in names if name.startswith("embed_z")} == tower


@pytest.mark.parametrize("members", [1, 2])
def test_an_actor_climbs_F_through_the_columns_of_its_action_alone(members: int) -> None:
    F = ForwardMap(5, 2, 4, 3, hidden=8, layers=1, members=members).double()
    initialise(F, torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(1)
    obs, z, action = (torch.randn(6, k, generator=g, dtype=torch.float64) for k in (5, 4, 2))
    weights = torch.randn(members, 6, 3, generator=g, dtype=torch.float64)

    def slopes(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What F gives, and its gradient by the action, when these inputs ask for gradients."""
        for x in inputs:
            x.requires_grad_()
        out = F(obs, z, action)
        (slope,) = torch.autograd.grad((weights * out).sum(), action)
        for x in inputs:
            x.requires_grad_(False)
        return out, slope

    joined, split = slopes(obs, z, action), slopes(action)  # with all of them, rows are joined
    torch.testing.assert_close(split, joined, rtol=0, atol=1e-12)
    torch.testing.assert_close(F(obs, z, action), joined[0], rtol=0, atol=1e-12)
