"""The O(N d²) loss is the N×N loss, and the losses are what the equations say."""

import pytest
import torch

from zol.models.losses import dense_loss, gram_loss, orthonormality_loss, pessimistic, q_loss


def inputs(members: int, n: int = 37, d: int = 9) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(members)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    terminated = torch.rand(n, generator=g) < 0.2
    return {
        "F": draw(members, n, d).requires_grad_(),
        "B": draw(n, d).requires_grad_(),
        "target_F": draw(members, n, d),
        "target_B": draw(n, d),
        "gamma": 0.97 * (~terminated).double(),
    }


@pytest.mark.parametrize("stretches", [False, True], ids=["steps", "stretches"])
@pytest.mark.parametrize("members", [1, 2, 4])
def test_gram_form_equals_dense_form(members: int, stretches: bool) -> None:
    x = inputs(members)
    mass = torch.linspace(1, 5, 37, dtype=torch.float64) if stretches else None
    fast = gram_loss(x["F"], x["B"], x["target_F"].mean(0), x["target_B"], x["gamma"], mass)
    fast_grads = torch.autograd.grad(fast.value, (x["F"], x["B"]))
    target = (x["target_F"] @ x["target_B"].mT).mean(0)
    slow = dense_loss(x["F"], x["B"], target, x["gamma"], mass)
    slow_grads = torch.autograd.grad(slow.value, (x["F"], x["B"]))
    torch.testing.assert_close(fast.value, slow.value, rtol=1e-10, atol=0)
    for a, b in zip(fast_grads, slow_grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    for name in fast.terms:
        torch.testing.assert_close(fast.terms[name], slow.terms[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("members", [1, 2, 4])
def test_dense_form_equals_the_double_sum(members: int) -> None:
    """The slowest form: two Python loops over the definition."""
    x = inputs(members, n=8, d=3)
    mass = torch.linspace(1, 5, 8, dtype=torch.float64)
    target = (x["target_F"] @ x["target_B"].mT).mean(0)
    expected = torch.zeros((), dtype=torch.float64)
    for p in range(members):
        off = diagonal = torch.zeros((), dtype=torch.float64)
        for i in range(8):
            for j in range(8):
                error = x["F"][p, i] @ x["B"][j] - x["gamma"][i] * target[i, j]
                if i == j:
                    diagonal = diagonal + mass[i] * x["F"][p, i] @ x["B"][i] / 8
                else:
                    off = off + 0.5 * error**2 / (8 * 7)
        expected = expected + off - diagonal
    torch.testing.assert_close(dense_loss(x["F"], x["B"], target, x["gamma"], mass).value, expected)


def test_terminated_rows_do_not_bootstrap() -> None:
    x = inputs(2)
    x["gamma"] = torch.zeros_like(x["gamma"])
    one = gram_loss(x["F"], x["B"], x["target_F"].mean(0), x["target_B"], x["gamma"]).value
    other = gram_loss(x["F"], x["B"], 100 * x["target_F"].mean(0), x["target_B"], x["gamma"]).value
    torch.testing.assert_close(one, other)


def test_orthonormality_by_the_matrix() -> None:
    B = inputs(2)["B"]
    C = B @ B.mT
    n = len(B)
    off = C.square().sum() - C.diagonal().square().sum()
    expected = 0.5 * off / (n * (n - 1)) - C.diagonal().mean()
    torch.testing.assert_close(orthonormality_loss(B), expected)


def test_orthonormality_is_lowest_for_an_orthonormal_basis() -> None:
    """Its minimum over all B is −d/2, reached when E[BBᵀ] = I."""
    d = 6
    rows = torch.eye(d, dtype=torch.float64).repeat(200, 1) * d**0.5
    assert float(orthonormality_loss(rows)) == pytest.approx(-d / 2, rel=0.05)
    assert float(orthonormality_loss(1.3 * rows)) > float(orthonormality_loss(rows))
    assert float(orthonormality_loss(0.7 * rows)) > float(orthonormality_loss(rows))


def test_pessimism_of_half_is_the_minimum_of_two() -> None:
    x = torch.randn(2, 50)
    torch.testing.assert_close(pessimistic(x, 0.5), x.amin(0))
    torch.testing.assert_close(pessimistic(x, 0.0), x.mean(0))


def test_pessimism_of_one_member_is_that_member() -> None:
    x = torch.randn(1, 50)
    torch.testing.assert_close(pessimistic(x, 0.5), x[0])


def test_q_loss_by_the_inverse() -> None:
    x = inputs(2)
    z = torch.randn(37, 9, dtype=torch.float64)
    inverse = torch.linalg.inv(x["B"].mT @ x["B"] / 37)
    reward = torch.einsum("nd,de,ne->n", x["B"], inverse, z)
    target = reward + x["gamma"] * torch.einsum("pnd,nd->pn", x["target_F"], z).mean(0)
    error = torch.einsum("pnd,nd->pn", x["F"], z) - target
    expected = 0.5 * 2 * error.square().mean()
    torch.testing.assert_close(q_loss(x["F"], x["B"], z, x["target_F"], x["gamma"], 0.0), expected)


def test_fb_fixed_point_is_the_successor_measure() -> None:
    """The expected loss of exact F and B has zero gradient: the loss learns what measure.py reads."""
    from zol.worlds.tabular import random_mdp

    mdp = random_mdp(5, 2, torch.Generator().manual_seed(0))
    policy = torch.full((5, 2), 0.5, dtype=torch.float64)
    rho_pairs = torch.full((5, 2), 0.1, dtype=torch.float64)
    rho = torch.einsum("sa,sat->t", rho_pairs, mdp.transition)  # next-state marginal of the data
    density = mdp.successor(policy) / rho  # m(s, a, s') = F·B with B = e_s
    density = density.requires_grad_()
    target = torch.einsum("sat,tb,tbu->sau", mdp.transition, policy, density.detach())
    # E over (s,a)~data and independent s+~ρ of ½(m − γ m̄)², minus E of m(s, a, s').
    square = 0.5 * torch.einsum("sa,t,sat->", rho_pairs, rho, (density - mdp.discount * target).square())
    pull = torch.einsum("sa,sat,sat->", rho_pairs, mdp.transition, density)
    (gradient,) = torch.autograd.grad(square - pull, density)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-10, rtol=0)
