"""Batched worlds against dm_control, step by step.

Observations must be bit-equal: both sides run the same engine on the same model from the same state, so any
difference would be a difference of method. Rewards add the same numbers in another order; momenta of up to
100 with 53 bits leave 1e-13.
"""

import numpy as np
import pytest
import torch
from control_reference import DOMAINS, STOCK, Reference

from zol.worlds import make

STEPS, ENVIRONMENTS = 200, 3
REWARD_TOLERANCE = 1e-13


def random_actions(domain: str, action_dim: int, generator: torch.Generator) -> torch.Tensor:
    actions = torch.rand((STEPS, ENVIRONMENTS, action_dim), generator=generator, dtype=torch.float64) * 2 - 1
    if domain == "point_mass_maze":  # held, so that the ball reaches walls, corners and the joints' limits
        return actions[::40].sign().repeat_interleave(40, dim=0)
    return actions


@pytest.fixture(scope="module", params=DOMAINS)
def rollouts(request):
    """Both sides' observations, rewards and states over the same random actions from the same starts."""
    world, generator = make(request.param), torch.Generator().manual_seed(7)
    start = world.reset(ENVIRONMENTS, generator)
    assert start.physics is not None
    actions = random_actions(request.param, world.action_dim, generator)
    ours = [world.step(action) for action in actions]
    theirs = []
    reference = Reference(request.param)
    for row in range(ENVIRONMENTS):
        reference.set_state(start.physics[row].numpy())
        first = reference.observation()
        episode = []
        for action in actions[:, row]:
            reference.step(action.numpy())
            episode.append(
                (reference.observation(), reference.rewards(), reference.physics.get_state().copy())
            )
        theirs.append((first, episode))
    return world, start, ours, theirs


def test_observations_and_states_are_bit_equal(rollouts):
    _, start, ours, theirs = rollouts
    for row, (first, episode) in enumerate(theirs):
        np.testing.assert_array_equal(start.obs[row].numpy(), first)
        for states, (observation, _, state) in zip(ours, episode, strict=True):
            np.testing.assert_array_equal(states.obs[row].numpy(), observation)
            np.testing.assert_array_equal(states.physics[row].numpy(), state)


def test_every_task_pays_what_the_slow_computation_pays(rollouts):
    world, _, ours, theirs = rollouts
    assert set(world.tasks) == set(theirs[0][1][0][1]), "every task needs a reference"
    assert set(STOCK.get(world.name, ())) <= set(world.tasks)
    for name, task in world.tasks.items():
        for t, states in enumerate(ours):
            expected = [episode[t][1][name] for _, episode in theirs]
            np.testing.assert_allclose(task(states).numpy(), expected, rtol=0, atol=REWARD_TOLERANCE)


def test_these_rollouts_see_something(rollouts):
    """The comparison is worth something only if rewards vary and the bodies touch the ground or walls."""
    world, start, ours, _ = rollouts
    moved = (ours[-1].obs - start.obs).abs().amax()
    assert moved > 0.1
    paid = {name: torch.stack([task(s) for s in ours]) for name, task in world.tasks.items()}
    varied = [name for name, values in paid.items() if values.std() > 1e-4]
    assert len(varied) >= (2 if world.name == "point_mass_maze" else len(world.tasks))
    if world.name == "point_mass_maze":
        assert ours[-1].obs[:, :2].abs().amax() > 0.28  # at the edge


def test_rewards_hold_on_states_that_random_actions_never_reach(rollouts):
    """Fast, high and upside-down states: the formulas against the engine, one state at a time."""
    world, *_ = rollouts
    n = 200
    generator = torch.Generator().manual_seed(3)
    states = world.reset(n, generator)
    physics = states.physics
    nq = world.domain.model.nq
    pace = 0.06 if world.name == "point_mass_maze" else 4.0  # the maze's rewards look at speeds up to 0.1
    physics[:, nq : nq + world.domain.model.nv] += pace * torch.randn(
        (n, world.domain.model.nv), generator=generator, dtype=torch.float64
    )
    if world.name == "quadruped":
        physics[:, 2] += torch.rand(n, generator=generator, dtype=torch.float64)
        physics[:, 7:23] += 0.5 * torch.randn((n, 16), generator=generator, dtype=torch.float64)
    if world.name == "point_mass_maze":
        physics[:, :2] = 0.58 * torch.rand((n, 2), generator=generator, dtype=torch.float64) - 0.29
        corners = physics[::2, :2].sign() * 0.15  # half of them about a corner, which narrow rewards need
        physics[::2, :2] = corners + 0.02 * torch.randn(
            corners.shape, generator=generator, dtype=torch.float64
        )
    action = torch.rand((n, world.action_dim), generator=generator, dtype=torch.float64) * 2 - 1
    seen = type(states)(world.observe(physics), world.layout, action=action, physics=physics)
    reference = Reference(world.name)
    slow = []
    for row in range(n):
        reference.set_state(physics[row].numpy())
        reference.action = action[row].numpy()
        np.testing.assert_array_equal(seen.obs[row].numpy(), reference.observation())
        slow.append(reference.rewards())
    for name, task in world.tasks.items():
        expected = [rewards[name] for rewards in slow]
        assert np.ptp(expected) > 0.2, f"{name} pays nearly the same everywhere: this compares little"
        np.testing.assert_allclose(task(seen).numpy(), expected, rtol=0, atol=REWARD_TOLERANCE)


def test_the_ball_meets_every_wall_of_the_maze_where_dm_control_has_it():
    """Pushed against the tips and the sides of the plus, into its inner corners, and against the edges."""
    world, reference = make("point_mass_maze"), Reference("point_mass_maze")
    towards_tip = [
        (x, y, -np.sign(x), -np.sign(y)) for x, y in [(0.25, 0), (-0.25, 0), (0, 0.25), (0, -0.25)]
    ]
    corners = [(x, y, -np.sign(x), -np.sign(y)) for x in (0.1, -0.1) for y in (0.1, -0.1)]
    sides = [(x, y, 0.0, -np.sign(y)) for x, y in [(0.17, 0.1), (-0.17, 0.1), (0.17, -0.1), (-0.17, -0.1)]]
    edges = [(x, y, np.sign(x), np.sign(y)) for x in (0.25, -0.25) for y in (0.25, -0.25)]
    plan = torch.tensor([*towards_tip, *corners, *sides, *edges], dtype=torch.float64)
    start = torch.cat([plan[:, :2], torch.zeros(len(plan), 2, dtype=torch.float64)], dim=1)
    world.set_physics(start)
    ours = [world.step(plan[:, 2:]).obs.numpy() for _ in range(120)]
    for row, (begin, push) in enumerate(zip(start.numpy(), plan[:, 2:].numpy(), strict=True)):
        reference.set_state(begin)
        for seen in ours:
            reference.step(push)
            np.testing.assert_array_equal(seen[row], reference.observation())
    assert np.abs(ours[-1][:, 2:]).max() < 1e-3, "by now everything rests against something"
