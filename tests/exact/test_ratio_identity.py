"""The paper's identities hold to 1e-8 on finite MDPs, and fail as soon as a convention is wrong."""

from typing import Any, Literal

import pytest
import torch

from zol import measure
from zol.models.base import Measure
from zol.testing.exact import ExactFB
from zol.worlds.tabular import FiniteMDP, chain, four_rooms, random_mdp

EXACT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def data_density(mdp: FiniteMDP, seed: int = 1) -> torch.Tensor:
    """Some full-support next-state distribution of a dataset."""
    weights = 0.2 + torch.rand(mdp.states, generator=generator(seed), dtype=torch.float64)
    return weights / weights.sum()


MDPS = {
    "chain": chain(),
    "random": random_mdp(12, 3, generator(2)),
    "four_rooms": four_rooms(discount=0.8).mdp,
}


@pytest.fixture(params=MDPS, scope="module")
def mdp(request: pytest.FixtureRequest) -> FiniteMDP:
    return MDPS[request.param]


def exact_model(mdp: FiniteMDP, **measure_facts: Any) -> ExactFB:
    return ExactFB(mdp, data_density(mdp), measure=Measure(**measure_facts), generator=generator())


def latents(model: ExactFB, n: int = 6) -> torch.Tensor:
    return model.project(torch.randn(n, model.z_dim, generator=generator(3), dtype=torch.float64))


def start_mean(model: ExactFB, z: torch.Tensor) -> torch.Tensor:
    """μ(z) with the expectation over ρ0 taken exactly: the start state enters as a mixture row."""
    one_by_one = torch.eye(model.mdp.states, dtype=torch.float64)
    action = model.act(one_by_one, z.unsqueeze(-2))
    F = model.forward(one_by_one, z.unsqueeze(-2), action).mean(0)
    return (model.mdp.start.unsqueeze(-1) * F).sum(-2)


def ratio(model: ExactFB, z: torch.Tensor) -> torch.Tensor:
    return measure.raw_ratio(model, start_mean(model, z), model.features())


@pytest.mark.parametrize("begins", ["next", "current"])
@pytest.mark.parametrize("normalised", [False, True])
def test_ratio_is_occupancy_over_density(
    mdp: FiniteMDP, begins: Literal["next", "current"], normalised: bool
) -> None:
    model = exact_model(mdp, begins=begins, normalised=normalised)
    z = latents(model)
    expected = mdp.occupancy(model.policy(z), begins) / model.density
    torch.testing.assert_close(ratio(model, z), expected, **EXACT)


def test_occupancy_agrees_with_the_power_series(mdp: FiniteMDP) -> None:
    """The slow obvious version: walk the chain and add up γ^t Pr(s_t)."""
    policy = exact_model(mdp).policy(latents(exact_model(mdp), 1))[0]
    P, state = mdp.under(policy), mdp.start.clone()
    current, following = torch.zeros_like(state), torch.zeros_like(state)
    for t in range(400):
        current += (1 - mdp.discount) * mdp.discount**t * state
        state = state @ P
        following += (1 - mdp.discount) * mdp.discount**t * state
    torch.testing.assert_close(mdp.occupancy(policy, "current"), current, **EXACT)
    torch.testing.assert_close(mdp.occupancy(policy, "next"), following, **EXACT)


def test_the_papers_pair_form_marginalises_to_the_current_state_form() -> None:
    mdp = MDPS["random"]
    policy = exact_model(mdp).policy(latents(exact_model(mdp), 1))[0]
    pairs = mdp.successor_pairs(policy).reshape(mdp.states, mdp.actions, mdp.states, mdp.actions)
    torch.testing.assert_close(pairs.sum(-1), mdp.successor(policy, "current"), **EXACT)
    # ... and its pair occupancy is d(s)·π(a|s).
    start = torch.einsum("s,sa->sa", mdp.start, policy)
    occupancy = (1 - mdp.discount) * torch.einsum("sa,satb->tb", start, pairs)
    torch.testing.assert_close(occupancy, mdp.occupancy(policy, "current").unsqueeze(-1) * policy, **EXACT)


def test_ratio_has_mean_one(mdp: FiniteMDP) -> None:
    model = exact_model(mdp)
    mean = (ratio(model, latents(model)) * model.density).sum(-1)
    torch.testing.assert_close(mean, torch.ones_like(mean), **EXACT)


def test_first_theorem_centred_objective(mdp: FiniteMDP) -> None:
    """E_β[w (r − r̄)] = E_π[r] − r̄."""
    model = exact_model(mdp)
    z, r = latents(model), torch.randn(mdp.states, generator=generator(4), dtype=torch.float64)
    centred = r - (model.density * r).sum()
    objective = (model.density * ratio(model, z) * centred).sum(-1)
    expected = mdp.value(model.policy(z), r) - (model.density * r).sum()
    torch.testing.assert_close(objective, expected, **EXACT)


def test_second_theorem_chi_square(mdp: FiniteMDP) -> None:
    """E_β[(w − 1)²] = χ²(d_π ‖ d_β)."""
    model = exact_model(mdp)
    z = latents(model)
    d = mdp.occupancy(model.policy(z))
    expected = ((d - model.density).square() / model.density).sum(-1)
    got = (model.density * (ratio(model, z) - 1).square()).sum(-1)
    torch.testing.assert_close(got, expected, **EXACT)


def test_proposition_on_policy_data_make_the_objective_flat(mdp: FiniteMDP) -> None:
    """If the data are π_z's own occupancy, w ≡ 1 and the centred objective is 0 for every reward."""
    model = exact_model(mdp)
    # z fixes the reward B(s)ᵀz only together with the density, so look for a self-consistent pair:
    # a uniform policy needs no reward at all.
    uniform = torch.full((mdp.states, mdp.actions), 1 / mdp.actions, dtype=torch.float64)
    own = mdp.occupancy(uniform)
    M = mdp.successor(uniform)
    w = (1 - mdp.discount) * torch.einsum("s,sa,sat->t", mdp.start, uniform, M) / own
    reached = own > 0
    torch.testing.assert_close(w[reached], torch.ones_like(w[reached]), **EXACT)
    r = torch.randn(mdp.states, generator=generator(5), dtype=torch.float64)
    objective = (own * torch.nan_to_num(w) * (r - (own * r).sum())).sum()
    torch.testing.assert_close(objective, torch.zeros_like(objective), **EXACT)
    assert model.z_dim == mdp.states


def test_estimated_return_is_the_true_return_for_many_latents(mdp: FiniteMDP) -> None:
    model = exact_model(mdp)
    z, r = latents(model, 20), torch.rand(mdp.states, generator=generator(6), dtype=torch.float64)
    estimate = (model.density * ratio(model, z) * r).sum(-1)
    torch.testing.assert_close(estimate, mdp.value(model.policy(z), r), **EXACT)


def test_conversion_between_conventions(mdp: FiniteMDP) -> None:
    """J from s_0 on, minus the start's reward, is J from s_1 on."""
    model = exact_model(mdp, begins="current")
    z, r = latents(model), torch.rand(mdp.states, generator=generator(7), dtype=torch.float64)
    from_now = (model.density * ratio(model, z) * r).sum(-1)
    converted = measure.next_state_return(model, from_now, (mdp.start * r).sum())
    torch.testing.assert_close(converted, mdp.value(model.policy(z), r), **EXACT)


@pytest.mark.parametrize(
    "lie", [Measure(normalised=True), Measure(begins="current")], ids=["missing 1−γ", "one step off"]
)
def test_a_wrong_convention_is_noticed(mdp: FiniteMDP, lie: Measure) -> None:
    """The tests above are able to fail: reading the same F and B under another convention breaks them."""
    truthful = exact_model(mdp)
    z, r = latents(truthful), torch.rand(mdp.states, generator=generator(8), dtype=torch.float64)
    mu = start_mean(truthful, z)
    truth = mdp.value(truthful.policy(z), r)
    truthful.measure = lie
    estimate = (truthful.density * measure.raw_ratio(truthful, mu, truthful.features()) * r).sum(-1)
    estimate = measure.next_state_return(truthful, estimate, (mdp.start * r).sum())
    assert (estimate - truth).abs().max() > 1e-3


def test_forward_mean_is_the_plain_loop(mdp: FiniteMDP) -> None:
    model = exact_model(mdp)
    starts = torch.eye(mdp.states, dtype=torch.float64)[: min(5, mdp.states)]
    z = latents(model, 3)
    fast = measure.forward_mean(model, starts, z)
    slow = torch.stack(
        [torch.stack([model.forward(s, row, model.act(s, row)).mean(0) for s in starts]).mean(0) for row in z]
    )
    torch.testing.assert_close(fast, slow, **EXACT)
