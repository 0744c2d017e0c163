"""Rewards of the prior, the features that span them and their latents, against slow computations."""

import math

import numpy as np
import pytest
import torch

from zol.models.prior_features import PriorFeaturesConfig
from zol.models.reward_prior import (
    OPEN,
    PARTS,
    RAMPS,
    WIDTH,
    PriorShape,
    draw_rewards,
    evaluate,
    informative,
    posture_rewards,
    seldom_earned,
)
from zol.models.reward_space import RewardSpace, balanced, clusters, value_range

LOW, HIGH = torch.tensor([-1.0, 0.0, 5.0, -3.0]), torch.tensor([1.0, 2.0, 9.0, 3.0])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def states(n: int, seed: int = 1) -> torch.Tensor:
    return LOW + (HIGH - LOW) * torch.rand(n, 4, generator=generator(seed))


def slow(reward: torch.Tensor, values: torch.Tensor) -> float:
    """One reward in one state, written out."""
    ramps = []
    for k in range(RAMPS):
        quantity, low, high, margin, floor, used = reward[k * PARTS : (k + 1) * PARTS].tolist()
        if used:
            x = float(values[int(quantity)])
            outside = low - x if x < low else x - high if x > high else 0.0
            ramps.append(floor + (1 - floor) * max(0.0, 1 - outside / margin))
    return sum(ramps) / len(ramps) if reward[-1] else math.prod(ramps)


def test_rewards_equal_their_definition() -> None:
    rewards, values = draw_rewards(60, LOW, HIGH, generator()), states(40)
    found = evaluate(rewards, values, chunk=7)
    expected = [[slow(reward, value) for reward in rewards] for value in values]
    assert torch.allclose(found, torch.tensor(expected), atol=2e-6)
    assert found.shape == (40, 60)


def test_rewards_are_drawn_as_described() -> None:
    shape = PriorShape(counts=(0.2, 0.3, 0.5), near=0.25, at_least=0.6, reach=2.0, averaged=0.4)
    rewards = draw_rewards(20_000, LOW, HIGH, generator(), shape)
    assert rewards.shape == (20_000, WIDTH)
    parts = rewards[:, :-1].unflatten(-1, (RAMPS, PARTS))
    used = parts[..., 5]
    assert torch.allclose(
        torch.bincount(used.sum(-1).long())[1:] / 20_000, torch.tensor([0.2, 0.3, 0.5]), atol=0.015
    )
    assert float(rewards[:, -1].mean()) == pytest.approx(0.4, abs=0.015)
    both = (parts[..., 1] > -OPEN) & (parts[..., 2] < OPEN)
    assert float(both.float().mean()) == pytest.approx(0.25, abs=0.01)
    more = (parts[..., 1] > -OPEN) & ~both
    assert float(more[~both].float().mean()) == pytest.approx(0.6, abs=0.01)
    quantity = parts[..., 0].long()
    assert all(len(set(row)) == RAMPS for row in quantity[:200].tolist()), "different quantities"
    bound = torch.where(more, parts[..., 1], parts[..., 2])[~both]
    centre, half = ((LOW + HIGH) / 2)[quantity[~both]], ((HIGH - LOW) / 2)[quantity[~both]]
    assert float(((bound - centre) / half).abs().max()) <= 2.0
    assert float(((bound - centre) / half).abs().max()) > 1.9, "beyond what the data show"


def test_two_quantities_will_do() -> None:
    rewards = draw_rewards(50, LOW[:2], HIGH[:2], generator())
    assert bool(evaluate(rewards, states(10)[:, :2]).isfinite().all())


def test_rewards_that_say_nothing_are_left_out() -> None:
    rewards = draw_rewards(300, LOW, HIGH, generator())
    values = states(500)
    kept = informative(rewards, values, least=0.1)
    assert 0 < len(kept) < 300
    assert bool((evaluate(kept, values).std(0) >= 0.1).all())


def test_rewards_that_are_usually_earned_are_left_out() -> None:
    rewards, values = draw_rewards(300, LOW, HIGH, generator()), states(500)
    earned = evaluate(rewards, values).mean(0)
    kept = seldom_earned(rewards, values, 0.25)
    assert len(kept) == 75
    assert float(evaluate(kept, values).mean(0).max()) <= float(earned.sort().values[74])
    order = [(rewards == reward).all(-1).nonzero()[0, 0] for reward in kept]
    assert order == sorted(order), (
        "in the order in which they were drawn, so that none comes first for being rare"
    )


def test_the_pool_follows_what_was_learned() -> None:
    """Where states are usually high, the pool asks for low ones, and the other way round."""

    def wanted(usual: torch.Tensor) -> float:
        """How much more the pool pays for the upper half of a quantity than for the lower one."""
        made = RewardSpace(4, 4, 8, 64, whitening=0.3)
        seen = torch.cat([usual, states(1_000)])  # all kinds occur
        made.rebuild(seen, seen, generator())
        made.grow(64, generator(2))
        paid = evaluate(made.pool, states(4_000, seed=5))
        upper = states(4_000, seed=5)[:, 1] > 1.0
        return float(paid[upper].mean() - paid[~upper].mean())

    high, low = states(8_000), states(8_000)
    high[:, 1], low[:, 1] = 1.8, 0.2
    assert wanted(high) < 0 < wanted(low)


def space(z_dim: int, pool: int = 64) -> RewardSpace:
    made = RewardSpace(4, 4, z_dim, pool, whitening=0.3)
    values = states(6_000)
    made.rebuild(values, values, generator())
    return made


def test_features_span_the_rewards_of_the_prior() -> None:
    """The first d principal directions: no d features do better, and unseen rewards fit, too."""
    made = space(32)
    phi = made.features(made.values)
    assert float(phi.mean(0).abs().max()) < 1e-5
    others = informative(draw_rewards(200, made.low, made.high, generator(5)), made.values)
    table = evaluate(others, made.values).double()
    table -= table.mean(0)
    fitted = phi.double() @ torch.linalg.lstsq(phi.double(), table).solution
    unexplained = (table - fitted).square().sum() / table.square().sum()
    assert float(unexplained) < 0.06
    basis = evaluate(made.basis, made.values).double()
    basis -= basis.mean(0)
    spectrum = torch.linalg.svdvals(basis).square()
    left = basis - phi.double() @ torch.linalg.lstsq(phi.double(), basis).solution
    assert float(left.square().sum()) == pytest.approx(float(spectrum[32:].sum()), rel=1e-3)


def test_latents_are_least_squares_prompts() -> None:
    made = space(8)
    made.grow(20, generator(2))
    phi = made.features(made.values) + 3.0  # a constant makes no difference
    made.place(phi)
    table = evaluate(made.pool[:20], made.values).double().numpy()
    centred = (phi - phi.mean(0)).double().numpy()
    weights = np.linalg.lstsq(centred, table - table.mean(0), rcond=None)[0].T
    expected = weights / np.linalg.norm(weights, axis=1, keepdims=True) * math.sqrt(8)
    assert np.allclose(made.latents[:20].numpy(), expected, atol=1e-3)
    assert int(made.count) == 20


def test_a_pool_grows_and_keeps_what_it_has() -> None:
    made = space(8)
    made.grow(10, generator(2))
    first = made.pool[:10].clone()
    made.grow(30, generator(3))
    assert torch.equal(made.pool[:10], first)
    made.grow(1000, generator(4))
    assert int(made.count) == 64


def test_a_new_space_leaves_latents_where_they_were() -> None:
    """New features on other states are turned so that policies keep their latents."""
    made = space(12)
    made.grow(64, generator(2))
    made.place(made.features(made.values))
    before = made.latents.clone()
    values = states(6_000, seed=9)
    made.rebuild(values, values, generator(11))
    made.place(made.features(made.values))
    likeness = (before * made.latents).sum(-1) / 12
    assert float(likeness.mean()) > 0.9
    assert not torch.equal(before, made.latents)


def test_a_balanced_sample_draws_every_cluster_as_often() -> None:
    values = torch.randn(6_000, 2, generator=generator()) ** 3
    low, high = value_range(values)
    cluster = clusters((values - low) / (high - low), generator(7))
    rows = balanced(values, low, high, 200_000, generator(7))
    drawn = torch.bincount(cluster[rows], minlength=int(cluster.max()) + 1)[cluster.unique()]
    expected = 200_000 / len(drawn)
    assert float((drawn / expected - 1).abs().max()) < 0.2
    sizes = torch.bincount(cluster)[cluster.unique()].float()
    assert float(sizes.max() / sizes.min()) > 5, "clusters differ in size, so this is no plain sample"


def test_rewards_of_posture_are_products_with_much_of_it() -> None:
    shape = PriorShape(posture_bounds=(0.5, 0.9), posture_margins=(0.2, 0.4), posture_alone=0.3)
    rewards = posture_rewards(20_000, (2, 0), LOW, HIGH, generator(), shape)
    parts = rewards[:, :-1].unflatten(-1, (RAMPS, PARTS))
    assert not rewards[:, -1].any(), "products"
    assert (parts[:, :2, 0] == torch.tensor([2.0, 0.0])).all()
    assert (parts[:, :2, 2] == OPEN).all()
    assert (parts[:, :2, 5] == 1).all()
    held = torch.tensor([2, 0])
    place = (parts[:, :2, 1] - LOW[held]) / (HIGH - LOW)[held]
    assert (float(place.min()), float(place.max())) == pytest.approx((0.5, 0.9), abs=0.01)
    margin = parts[:, :2, 3] / (HIGH - LOW)[held]
    assert (float(margin.min()), float(margin.max())) == pytest.approx((0.2, 0.4), abs=0.01)
    assert set(parts[:, 2, 0].tolist()) == {1.0, 3.0}, "the others"
    assert float(parts[:, 2, 5].mean()) == pytest.approx(0.7, abs=0.015)
    least = torch.stack([LOW, (LOW + HIGH) / 2, HIGH])
    assert torch.allclose(
        evaluate(rewards[:50], least), torch.tensor([[slow(r, v) for r in rewards[:50]] for v in least])
    )
    assert not evaluate(rewards, LOW.unsqueeze(0)).any(), "nothing without posture"


def test_posture_may_be_all_there_is() -> None:
    rewards = posture_rewards(50, (0, 1), LOW[:2], HIGH[:2], generator())
    found = evaluate(rewards, torch.stack([LOW[:2], HIGH[:2]]))
    assert bool((found[1] == 1).all()), "the most there is"
    assert bool((found[0] < 0.4).all())


def test_a_share_of_the_pool_asks_for_posture() -> None:
    space = RewardSpace(4, 4, 8, 400, 0.3, posture=(1,), posture_share=0.25)
    values = states(3_000)
    space.rebuild(values, values, generator())
    space.grow(400, generator())
    parts = space.pool[:, :-1].unflatten(-1, (RAMPS, PARTS))
    much = (parts[:, 0, 0] == 1) & (parts[:, 0, 2] == OPEN) & (parts[:, 1, 5] + parts[:, 2, 5] <= 1)
    assert 0.2 < float((much & (parts[:, 0, 4] == 0)).float().mean()) < 0.4


@pytest.mark.parametrize("posture", [("b",), ("x", "y", "z")])
def test_posture_is_of_the_quantities(posture: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="at most 2 of the quantities"):
        PriorFeaturesConfig(obs_dim=4, action_dim=1, quantities=("x", "y", "z"), posture=posture)
