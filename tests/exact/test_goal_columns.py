"""Models whose B sees the columns that goals depend on, and no others."""

from typing import Any

import pytest
import torch

from zol.common.config import ConfigError
from zol.data import Batch
from zol.models import MODELS
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.settings import settings_of
from zol.models.successor_features import SuccessorFeaturesLearner
from zol.testing import check_model

SIZES: dict[str, Any] = {
    "obs_dim": 5,
    "action_dim": 2,
    "z_dim": 6,
    "hidden": 16,
    "backward_hidden": 16,
    "normalise_obs": True,
}


@pytest.mark.parametrize("columns", ["0:2", "1:3", "3:5"])
def test_backward_sees_these_columns_alone(columns: str) -> None:
    model = fb_network(FBConfig(**SIZES, goal_columns=columns))
    check_model(model)
    first, end = map(int, columns.split(":"))
    obs = torch.randn(7, 5)
    other = torch.randn(7, 5)
    other[:, first:end] = obs[:, first:end]
    assert torch.equal(model.backward(obs), model.backward(other))
    z, action = model.project(torch.randn(7, 6)), torch.rand(7, 2)
    assert not torch.allclose(model.forward(obs, z, action), model.forward(other, z, action))
    assert not torch.allclose(model.act(obs, z), model.act(other, z))


def test_sines_are_those_of_goal_columns() -> None:
    model = fb_network(FBConfig(**SIZES, goal_columns="1:3", fourier=2))
    obs = torch.randn(4, 5)
    assert model.read(obs, ("goal",)).shape == (4, 10)
    assert model.read(obs).shape == (4, 3 + 10)
    z = model.project(torch.randn(4, 6))
    torch.testing.assert_close(model.at(z)(obs), model.act(obs, z), atol=1e-5, rtol=0)


def test_they_are_read_off_a_network_again() -> None:
    config = FBConfig(**SIZES, goal_columns="1:3", fourier=2)
    assert settings_of(fb_network(config).config)["goal_columns"] == "1:3"
    assert "goal_columns" not in settings_of(fb_network(FBConfig(**SIZES)).config)


@pytest.mark.parametrize("columns", ["2:2", "3:9", "0:5"])
def test_columns_that_are_not_there_are_refused(columns: str) -> None:
    with pytest.raises(ConfigError, match=f"goal_columns={columns} are not some of the 5 columns"):
        FBConfig(**SIZES, goal_columns=columns)


def test_it_learns() -> None:
    config = FBConfig(**SIZES, goal_columns="0:2")
    model = fb_network(config)
    before = model.get_parameter("backward_map.net.0.weight").clone()
    rows = Batch(torch.randn(32, 5), torch.rand(32, 2), torch.randn(32, 5), torch.zeros(32, dtype=torch.bool))
    FBLearner(model, config).update(rows, torch.Generator().manual_seed(0))
    assert before.shape[1] == 2
    assert not torch.equal(before, model.get_parameter("backward_map.net.0.weight"))


@pytest.mark.parametrize("sphered", [False, True])
@pytest.mark.parametrize("name", ["hilp", "successor_features"])
def test_hindsight_of_features_is_the_direction_to_the_rows_own_future(name: str, sphered: bool) -> None:
    entry = MODELS[name]
    config = entry.config(**SIZES | {"hindsight": 1.0, "future_discount": 0.9, "sphered": sphered})
    learner = entry.learner(entry.network(config), config)
    assert isinstance(learner, SuccessorFeaturesLearner)
    if sphered:
        learner.model.sphering.copy_(torch.randn(6, 6))
    assert learner.batches.future == 0.9
    obs, later = torch.randn(9, 5), torch.randn(9, 5)
    rows = Batch(obs, torch.rand(9, 2), obs, torch.zeros(9, dtype=torch.bool), future_obs=later)
    found = learner.hindsight(rows, torch.zeros(9, 6), torch.Generator())
    step = learner.model.regressors(later) - learner.model.regressors(obs)
    torch.testing.assert_close(found, 6**0.5 * step / step.norm(dim=-1, keepdim=True))
