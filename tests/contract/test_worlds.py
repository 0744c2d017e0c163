"""The small worlds keep the world contract, and rollouts do what the plain loop does."""

import pytest
import torch

from zol.collect.donut import collect
from zol.common.errors import DataError
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.rollout import evaluate
from zol.testing import check_world
from zol.worlds.donut import INNER, OUTER, Donut
from zol.worlds.tabular import four_rooms


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("world", [Donut(), four_rooms()], ids=lambda w: w.name)
def test_contract(world) -> None:
    check_world(world)


def test_donut_moves_by_a_tenth_and_stays_on_the_annulus() -> None:
    world = Donut()
    world.set_physics(torch.tensor([[1.0, 0.0], [1.5, 0.0], [0.25, 0.0]]))
    reached = world.step(torch.tensor([[0.5, -1.0], [1.0, 0.0], [-1.0, 0.0]])).obs
    torch.testing.assert_close(reached, torch.tensor([[1.05, -0.1], [1.5, 0.0], [0.25, 0.0]]))


def test_donut_data_are_denser_in_the_middle() -> None:
    data = collect(20_000, generator())
    radius = data.transitions().obs.norm(dim=-1)
    assert float(radius.min()) >= INNER - 1e-6
    assert float(radius.max()) <= OUTER + 1e-6
    area = [(0.25, 0.5), (0.7, 0.9), (1.1, 1.3)]
    density = [float(((radius > a) & (radius < b)).float().mean()) / (b**2 - a**2) for a, b in area]
    assert density[0] > 1.5 * density[1] > 3 * density[2] > 0
    assert len(data.starts()) == 1024


def test_donut_data_follow_the_dynamics() -> None:
    batch = collect(2_000, generator()).transitions()
    world = Donut()
    world.set_physics(batch.obs)
    torch.testing.assert_close(world.step(batch.action).obs, batch.next_obs)


def test_every_donut_task_rewards_something_and_not_everything() -> None:
    world = Donut()
    states = world.reset(5_000, generator())
    for name, task in world.tasks.items():
        share = float(task(states).mean())
        assert 0.01 < share < 0.6, name


def test_rollout_equals_the_plain_loop_and_pairs_starts() -> None:
    """Discounted returns are on the scale of the model's estimates, so they use the model's discount."""
    world = Donut()
    model = fb_network(
        FBConfig(obs_dim=2, action_dim=2, z_dim=4, hidden=16, backward_hidden=16, discount=0.9)
    )
    assert model.discount != world.discount
    z = model.project(torch.randn(3, 4, generator=generator(1)))
    names = ["square", "cross", "square"]
    latents = [Latent(row, identity(model), name, "test") for row, name in zip(z, names, strict=True)]
    result = evaluate(world, model, latents, episodes=5, generator=generator(2), steps=20, keep_visited=True)
    assert result.visited is not None
    starts = Donut().reset(5, generator(2)).obs
    for k, (row, name) in enumerate(zip(z, names, strict=True)):
        for e in range(5):
            single = Donut()
            states = single.set_physics(starts[e : e + 1])
            total = discounted = 0.0
            for t in range(20):
                with torch.no_grad():
                    states = single.step(model.act(states.obs, row.unsqueeze(0)))
                r = float(world.tasks[name](states))
                total += r
                discounted += (1 - model.discount) * model.discount**t * r
            assert float(result.returns[k, e]) == pytest.approx(total)
            assert float(result.discounted[k, e]) == pytest.approx(discounted)
            torch.testing.assert_close(result.visited[-1, k, e], states.obs[0], atol=1e-5, rtol=0)


def test_rollout_mistakes_are_explained() -> None:
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=4, hidden=16, backward_hidden=16))
    latent = Latent(torch.ones(4), identity(model), "sqare", "test")
    with pytest.raises(DataError, match="did you mean 'square'"):
        evaluate(Donut(), model, [latent], episodes=2, generator=generator())
    with pytest.raises(DataError, match="no latents"):
        evaluate(Donut(), model, [], episodes=2, generator=generator())
