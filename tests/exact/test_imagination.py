"""Imagined rollouts against the slow obvious loop, and against the world when the dynamics are true."""

import pytest
import torch
from torch import Tensor
from true_donut import TrueDonut

from zol.common.errors import DataError
from zol.fields import Field, Layout, States
from zol.imagination.dynamics import Dynamics, DynamicsConfig, full_state
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import Latent, model_hash
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.prompt import RewardMoments
from zol.rollout import evaluate
from zol.tasks import Task
from zol.worlds import make


@pytest.fixture
def model() -> Network:
    return fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16, discount=0.9))


def test_true_dynamics_give_true_returns(model: Network) -> None:
    world = make("donut")
    tasks = list(world.tasks.values())
    z = model.project(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)))
    starts = world.reset(4, torch.Generator().manual_seed(1)).obs
    room = ImaginedRollouts(model, TrueDonut(), world.layout, tasks, starts.float(), horizon=20)  # type: ignore[arg-type]
    imagined = room.values(z, torch.Generator())
    identity = model_hash(model)
    for t, task in enumerate(tasks):
        latents = [Latent(row, identity, task.name, "test") for row in z]
        played = evaluate(
            world, model, latents, episodes=4, generator=torch.Generator().manual_seed(1), steps=20
        )
        for member in range(2):
            assert torch.allclose(imagined[:, member, t].double(), played.returns / 20, atol=1e-5)


LAYOUT = Layout(3, (Field("x", 0, 3),), {"height": lambda s: s.need_physics()[..., 0]}, hidden=("height",))
TASKS = (
    Task("x", lambda s: s["x"][..., 0]),
    Task("height", lambda s: s["height"]),
    Task("effort", lambda s: s.need_action().square().sum(-1)),
)


def ensemble(noise: float = 0.0) -> Dynamics:
    config = DynamicsConfig(
        obs_dim=3, action_dim=2, hidden_fields=("height",), hidden=16, layers=2, members=3
    )
    dynamics = Dynamics(config, torch.Generator().manual_seed(2))
    dynamics.low.fill_(-3.0)
    dynamics.high.fill_(3.0)
    dynamics.change.fill_(0.1)
    dynamics.error.fill_(noise)
    return dynamics


@pytest.mark.parametrize("bootstrap", [False, True])
def test_batched_rollouts_equal_one_environment_at_a_time(bootstrap: bool) -> None:
    model = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16, discount=0.9))
    dynamics, gamma, horizon = ensemble(), 0.9 if bootstrap else 1.0, 13
    generator = torch.Generator().manual_seed(3)
    z, starts = model.project(torch.randn(4, 6, generator=generator)), torch.randn(5, 4, generator=generator)
    weights = torch.randn(3, 6, generator=generator) if bootstrap else None
    moments = RewardMoments(weights, weights, torch.zeros(3), torch.zeros(3)) if weights is not None else None
    rollouts = ImaginedRollouts(model, dynamics, LAYOUT, TASKS, starts, horizon, bootstrap=moments)
    got = rollouts.values(z, generator)
    assert got.shape == (4, 3, 3, 5)
    with torch.no_grad():
        for k in range(4):
            for member in range(3):
                for s in range(5):
                    x, total = starts[s], torch.zeros(3)
                    for t in range(horizon):
                        action = model.act(x[:3], z[k])
                        x = dynamics(x.unsqueeze(0), action.unsqueeze(0))[member, 0]
                        seen = torch.stack([x[0], x[3], action.square().sum()])
                        total += gamma**t * seen
                    if weights is None:
                        wanted = total / horizon
                    else:
                        F = model.forward(x[:3], z[k], model.act(x[:3], z[k])).mean(0)
                        wanted = (1 - gamma) * (total + gamma**horizon * weights @ F)
                    assert torch.allclose(got[k, member, :, s], wanted, atol=1e-5)


def test_noise_is_shared_by_latents_and_scaled_by_the_error() -> None:
    model = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16))
    z = model.project(torch.randn(1, 6)).repeat(2, 1)
    starts = torch.randn(5, 4)

    def values(error: float) -> Tensor:
        room = ImaginedRollouts(model, ensemble(error), LAYOUT, TASKS, starts, 5, noise=1.0)
        return room.values(z, torch.Generator().manual_seed(0))

    noisy, still = values(0.5), values(0.0)
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.allclose(noisy, still)


def test_full_states_carry_hidden_fields_and_bounds_hold() -> None:
    states = States(torch.ones(2, 3), LAYOUT, physics=torch.tensor([[5.0], [6.0]], dtype=torch.float64))
    assert full_state(states, ("height",)).tolist() == [[1, 1, 1, 5], [1, 1, 1, 6]]
    dynamics = ensemble()
    assert (dynamics(100 * torch.ones(2, 4), torch.ones(2, 2)) <= 3.0).all()


def test_part_of_an_ensemble_plays_like_its_members() -> None:
    whole = ensemble()
    x, a = torch.randn(5, 4), torch.randn(5, 2)
    assert torch.equal(whole.first(2)(x, a), whole(x, a)[:2])
    with pytest.raises(DataError, match="has 3 networks, 4 were asked for"):
        whole.first(4)
