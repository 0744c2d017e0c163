"""Start states against dm_control's, coordinate by coordinate, with two-sample Kolmogorov-Smirnov tests.

Seeds are fixed, so the tests are deterministic. With 200 draws a side, a shift of a quarter of a standard
deviation would be found most of the time.
"""

import numpy as np
import pytest
import torch
from dm_control import suite
from dm_control.suite.quadruped import _find_non_contacting_height
from scipy import stats

from zol.worlds import World, make

DRAWS = 200
LEAST_P = 1e-3


def starts(world: World, n: int, seed: int) -> torch.Tensor:
    physics = world.reset(n, torch.Generator().manual_seed(seed)).physics
    assert physics is not None
    return physics


def our_starts(domain: str) -> np.ndarray:
    return starts(make(domain), DRAWS, 11).numpy()


def their_starts(domain: str, task: str) -> np.ndarray:
    env = suite.load(domain, task, task_kwargs={"random": 5})
    states = []
    for _ in range(DRAWS):
        env.reset()
        states.append(env.physics.get_state().copy())
    return np.stack(states)


@pytest.mark.parametrize(("domain", "task"), [("walker", "run"), ("cheetah", "run"), ("quadruped", "run")])
def test_start_states_have_dm_controls_distribution(domain, task):
    ours, theirs = our_starts(domain), their_starts(domain, task)
    assert ours.shape == theirs.shape
    for column in range(ours.shape[1]):
        if np.ptp(theirs[:, column]) == 0:  # never varied: must be the same constant
            np.testing.assert_array_equal(ours[:, column], theirs[:, column])
        else:
            p = stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue
            assert p > LEAST_P, f"{domain} column {column}: p = {p:.2g}"


def test_coordinates_start_independently():
    """A vectorised draw must not couple joints: no pair of the walker's is correlated."""
    angles = our_starts("walker")[:, 2:9]
    correlation = np.corrcoef(angles.T) - np.eye(7)
    assert np.abs(correlation).max() < 4 / np.sqrt(DRAWS)


def test_the_maze_starts_uniformly_in_its_room_at_rest():
    starts = our_starts("point_mass_maze")
    assert stats.kstest(starts[:, 0], stats.uniform(-0.29, 0.14).cdf).pvalue > LEAST_P
    assert stats.kstest(starts[:, 1], stats.uniform(0.15, 0.14).cdf).pvalue > LEAST_P
    np.testing.assert_array_equal(starts[:, 2:], 0.0)


def test_quadruped_heights_are_those_of_the_search_from_the_floor():
    starts = our_starts("quadruped")[:25]
    physics = suite.load("quadruped", "run").physics
    for row in starts:
        _find_non_contacting_height(physics, row[3:7])
        assert physics.named.data.qpos["root"][2] == row[2]


def test_cheetah_settles_exactly_as_in_dm_control():
    world = make("cheetah")
    ours = starts(world, 20, 4).numpy()
    unit = torch.rand((20, 6), generator=torch.Generator().manual_seed(4), dtype=torch.float64).numpy()
    physics = suite.load("cheetah", "run").physics
    low, high = physics.model.jnt_range[3:].T
    for row in range(20):
        with physics.reset_context():
            physics.data.qpos[3:] = low + (high - low) * unit[row]
            physics.step(nstep=200)
        np.testing.assert_array_equal(ours[row], physics.get_state())


def test_the_same_seed_starts_the_same_and_another_differs():
    world = make("quadruped")
    first, again, other = (starts(world, 4, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
