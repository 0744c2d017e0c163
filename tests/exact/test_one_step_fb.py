"""One-step FB against the exact successor measure of the behaviour that made the data."""

import numpy as np
import pytest
import torch
from ring import GAMMA, STATES, exact_measure, ring

from zol.common.errors import DataError
from zol.data import Batch, Dataset
from zol.data.resident import Streamed
from zol.data.sampling import Sampler, step_back
from zol.models.one_step_fb import MODEL, OneStepFBConfig


@pytest.mark.parametrize(("n_step", "steps"), [(1, 700), (3, 300)])
def test_it_learns_the_measure_of_the_behaviour(n_step: int, steps: int) -> None:
    data = ring(4000, 0)
    config = OneStepFBConfig(
        obs_dim=STATES,
        action_dim=2,
        z_dim=STATES,
        discount=GAMMA,
        hidden=64,
        backward_hidden=32,
        backward_norm=False,
        discrete=True,
        learning_rate=2e-3,
        backward_learning_rate=2e-3,
        target_rate=0.1,
        members=1,
        n_step=n_step,
    )
    learner = MODEL.learner(MODEL.network(config, torch.Generator().manual_seed(0)), config)
    generator = torch.Generator().manual_seed(1)
    sampler = Sampler(data, torch.device("cpu"), learner.batches)
    for step in range(steps):
        learner.scale_learning_rates(min(1.0, 1.4 * (steps - step) / steps))
        learner.update(sampler.draw(learner.batches, 256, generator), generator)
    model, eye = learner.model, torch.eye(STATES)
    density = data.transitions().next_obs.mean(0)
    z = torch.randn(STATES, 1, STATES)
    every = torch.eye(2).expand(STATES, 2, 2)
    F = model.forward(eye.unsqueeze(1), z, every).mean(0).detach()
    found = F @ model.backward(eye).detach().mT * density  # M(s, a, s')
    torch.testing.assert_close(found, exact_measure(), atol=0.12, rtol=0)
    other = model.forward(eye.unsqueeze(1), -z, every).mean(0).detach()
    assert torch.equal(F, other)  # whatever z is


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_cut_episode_is_not_bootstrapped_from_its_end(n_step: int) -> None:
    data = ring(5, 0)
    config = OneStepFBConfig(obs_dim=STATES, action_dim=2, z_dim=3, hidden=8, n_step=n_step)
    spec = MODEL.learner(MODEL.network(config), config).batches
    batch = Sampler(data, torch.device("cpu"), spec).draw(spec, 200, torch.Generator().manual_seed(0))
    assert batch.last is not None
    assert not bool(batch.last.any())


def test_the_last_step_of_a_cut_episode_becomes_the_one_before() -> None:
    ended, cut = np.array([0, 0, 1, 0, 0, 0], bool), np.array([0, 0, 0, 0, 1, 1], bool)
    obs = np.arange(6, dtype=np.float32).reshape(-1, 1)
    data = Dataset.from_arrays(obs, np.zeros((6, 1), np.float32), obs + 1, terminated=ended, truncated=cut)
    found = step_back(Streamed(data, torch.device("cpu")), torch.arange(6))
    # A terminal end stays, and an episode of one step has no other.
    assert found.tolist() == [0, 1, 2, 3, 3, 5]


def test_what_it_cannot_learn_from_is_said() -> None:
    config = OneStepFBConfig(obs_dim=2, action_dim=2, z_dim=3, hidden=8)
    learner = MODEL.learner(MODEL.network(config), config)
    rows = Batch(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, dtype=torch.bool))
    with pytest.raises(DataError, match="learns from next actions, and this batch has none"):
        learner.update(rows, torch.Generator())
