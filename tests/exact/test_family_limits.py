"""What models of the family could do in four rooms if they learned without error, as in docs/models.md."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from zol.models import MODELS
from zol.worlds.tabular import FiniteMDP, four_rooms


@pytest.fixture(scope="module")
def mdp() -> FiniteMDP:
    return four_rooms().mdp


def share(mdp: FiniteMDP, policy: Tensor) -> Tensor:
    """What a policy per goal ``[S, S, A]`` is worth, as a share of the optimum, ``[S]``."""
    goals = torch.eye(mdp.states, dtype=torch.float64)
    return mdp.value(policy, goals) / mdp.optimal_value(goals)


def through_features(mdp: FiniteMDP, features: Tensor) -> float:
    """The mean share that the best policies for rewards projected onto features ``[S, d]`` reach."""
    weights = torch.linalg.lstsq(
        features, torch.eye(mdp.states, dtype=torch.float64), driver="gelsd"
    ).solution
    return float(share(mdp, mdp.optimal_policy((features @ weights).mT)).mean())


def steps_between(mdp: FiniteMDP) -> Tensor:
    """Fewest steps from cell to cell, ``[S, S]``."""
    apart = torch.where(mdp.transition.sum(1) > 0, 1.0, torch.inf).double()
    apart.fill_diagonal_(0)
    for k in range(mdp.states):
        apart = torch.minimum(apart, apart[:, k : k + 1] + apart[k : k + 1])
    return apart


def embedded_steps(mdp: FiniteMDP) -> Tensor:
    """The best Euclidean embedding of discounted steps ``[S, S]``, the largest dimensions first."""
    apart = (1 - 0.98 ** steps_between(mdp)) / 0.02
    centre = torch.eye(mdp.states, dtype=torch.float64) - 1 / mdp.states
    values, vectors = torch.linalg.eigh(-0.5 * centre @ apart.square() @ centre)
    values = torch.where(values > 1e-9, values, 0.0)  # the others are negative
    return (vectors * values.sqrt()).flip(1)


def uniform(mdp: FiniteMDP) -> Tensor:
    return torch.full((mdp.states, mdp.actions), 1 / mdp.actions, dtype=torch.float64)


def test_one_step_of_improvement_over_random_walks_is_enough_here(mdp: FiniteMDP) -> None:
    best = mdp.successor(uniform(mdp)).permute(2, 0, 1).argmax(-1)  # [goal, S]
    found = share(mdp, functional.one_hot(best, mdp.actions).double())
    assert float(found.mean()) > 0.999
    assert float(found.min()) > 0.99


def test_but_actions_differ_ten_times_less_by_its_values_than_by_the_best(mdp: FiniteMDP) -> None:
    """How far actions are apart in the value of a goal, as a share of that goal's largest value: medians."""
    goals = torch.eye(mdp.states, dtype=torch.float64)
    best = torch.stack([mdp.successor(policy)[..., g] for g, policy in enumerate(mdp.optimal_policy(goals))])
    walked = mdp.successor(uniform(mdp)).permute(2, 0, 1)  # [goal, S, A]
    elsewhere = ~torch.eye(mdp.states, dtype=torch.bool)

    def spread(values: Tensor) -> float:
        apart = (values.amax(-1) - values.amin(-1)) / values.amax((1, 2)).unsqueeze(-1)
        return float(apart[elsewhere].median())

    assert spread(walked) == pytest.approx(0.007, abs=0.001)
    assert spread(best) == pytest.approx(0.065, abs=0.001)


@pytest.mark.parametrize(("d", "reached"), [(4, 0.06), (16, 0.27), (32, 0.58), (50, 1.0)])
def test_smooth_features_need_many_dimensions(mdp: FiniteMDP, d: int, reached: float) -> None:
    P = mdp.under(uniform(mdp))
    _, smooth = torch.linalg.eigh(torch.eye(mdp.states, dtype=torch.float64) - (P + P.mT) / 2)
    assert through_features(mdp, smooth[:, :d]) == pytest.approx(reached, abs=0.03)


@pytest.mark.parametrize(("d", "reached"), [(4, 0.17), (16, 0.57), (32, 0.92), (50, 0.99)])
def test_features_whose_distances_are_steps_need_them_too(mdp: FiniteMDP, d: int, reached: float) -> None:
    """The best Euclidean embedding of discounted steps: half of its dimensions cannot exist."""
    features = embedded_steps(mdp)
    assert int((features != 0).any(0).sum()) < 50  # rooms are no subset of a Hilbert space
    assert through_features(mdp, features[:, :d]) == pytest.approx(reached, abs=0.03)


@pytest.mark.parametrize(("sphere", "reached"), [(False, 0.16), (True, 0.90)])
def test_an_error_of_psi_costs_hilp_less_where_its_features_are_sphered(
    mdp: FiniteMDP, sphere: bool, reached: float
) -> None:
    """The same 40 features, the exact ψ of the best policy for a goal, an error of 3 % of its spread.

    In exact arithmetic both say the same, ψ̃ᵀz̃ = ψᵀz; the error is the same for all dimensions.
    """
    mdp = replace(mdp, discount=0.98)
    goals = torch.eye(mdp.states, dtype=torch.float64)
    features = embedded_steps(mdp)[:, :40]
    if sphere:
        C = features.mT @ features / mdp.states
        values, vectors = torch.linalg.eigh(C)
        features = features @ (vectors * values.rsqrt()) @ vectors.mT
    weights = torch.linalg.lstsq(features, goals, driver="gelsd").solution
    psi = torch.stack(
        [mdp.successor(best) @ features for best in mdp.optimal_policy((features @ weights).mT)]
    )
    noise = torch.randn(psi.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error = 0.03 * (psi - psi.mean((0, 1, 2))).square().mean().sqrt() * noise
    chosen = torch.einsum("gsad,dg->gsa", psi + error, weights).argmax(-1)
    found = share(four_rooms().mdp, functional.one_hot(chosen, mdp.actions).double())
    assert float(found.mean()) == pytest.approx(reached, abs=0.03)


@pytest.mark.parametrize(("layers", "rank"), [(0, 3), (2, 16)])
def test_a_linear_encoder_of_two_numbers_has_three_dimensions(layers: int, rank: int) -> None:
    """φ = Π(W s + b) lies in the span of b and the columns of W: what TD-JEPA's ψ has to predict is that."""
    entry = MODELS["td_jepa"]
    sizes = {"obs_dim": 2, "action_dim": 2, "z_dim": 8, "hidden": 16}
    encoder = {"encoder_dim": 16, "encoder_layers": layers, "encoder_hidden": 32}
    model = entry.network(entry.config(**sizes, **encoder)).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.left.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        phi = model.left(3 * torch.randn(400, 2, dtype=torch.float64))
    values = torch.linalg.eigvalsh(phi.mT @ phi / len(phi))
    assert int((values > 1e-9 * values.max()).sum()) == rank
