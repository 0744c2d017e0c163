"""Rollouts on control worlds: rewards in blocks of steps must be those of a plain loop."""

import pytest
import torch

from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.rollout import REWARDS_AT_ONCE, evaluate
from zol.worlds import make


@pytest.mark.parametrize(
    ("name", "tasks"),
    [("quadruped", ("jump", "run", "jump")), ("point_mass_maze", ("reach_top_left", "reach_top_left_exorl"))],
)
def test_rollouts_earn_what_a_plain_loop_earns(name, tasks):
    world, episodes, steps = make(name), 2, REWARDS_AT_ONCE + 7
    model = fb_network(
        FBConfig(obs_dim=world.layout.obs_dim, action_dim=world.action_dim, z_dim=8, hidden=16)
    )
    z = model.project(torch.randn((len(tasks), 8), generator=torch.Generator().manual_seed(1)))
    latents = [Latent(z[k], identity(model), task, "random") for k, task in enumerate(tasks)]
    result = evaluate(
        world, model, latents, episodes=episodes, steps=steps, generator=torch.Generator().manual_seed(0)
    )
    starts = world.reset(episodes, torch.Generator().manual_seed(0)).physics
    assert starts is not None
    for k, task in enumerate(tasks):
        states = world.set_physics(starts)
        returns, discounted = torch.zeros(2, episodes, dtype=torch.float64)
        with torch.no_grad():
            for t in range(steps):
                states = world.step(model.act(states.obs.float(), z[k]))
                reward = world.tasks[task](states)
                returns += reward
                discounted += (1 - model.discount) * model.discount**t * reward
        # The policy sees other batch shapes here, with which float32 matrix products may round differently.
        torch.testing.assert_close(result.returns[k], returns, rtol=0, atol=1e-3)
        torch.testing.assert_close(result.discounted[k], discounted, rtol=0, atol=1e-4)
    assert result.returns[0].min() > 0.1
