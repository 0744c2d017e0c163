"""Sines and cosines of observations, and FB with them."""

import math

import pytest
import torch

from zol.common.config import ConfigError
from zol.data import Batch
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.fourier import FourierFeatures


def test_columns_by_the_formula() -> None:
    x = torch.randn(3, 2, dtype=torch.float64)
    seen = FourierFeatures(3)(x)
    assert seen.shape == (3, FourierFeatures(3).width(2)) == (3, 14)
    for row, wide in zip(x.tolist(), seen.tolist(), strict=True):
        angles = [value * 2**j * math.pi / 2 for value in row for j in range(3)]
        assert wide == pytest.approx([*row, *map(math.sin, angles), *map(math.cos, angles)])


def test_no_frequencies_change_nothing() -> None:
    x = torch.randn(4, 3)
    assert FourierFeatures(0)(x) is x


def test_a_model_with_fourier_features_is_a_model() -> None:
    """Its sizes are those of the data, it learns, and what rollouts prepare agrees with it."""
    config = FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16, normalise_obs=True, fourier=2)
    model = fb_network(config)
    assert model.obs_dim == 3
    before = model.get_parameter("backward_map.net.0.weight").clone()
    batch = Batch(
        torch.randn(32, 3), torch.rand(32, 2), torch.randn(32, 3), torch.zeros(32, dtype=torch.bool)
    )
    FBLearner(model, config).update(batch, torch.Generator().manual_seed(0))
    assert before.shape[1] == 15
    assert not torch.equal(before, model.get_parameter("backward_map.net.0.weight"))
    z = model.project(torch.randn(32, 6))
    torch.testing.assert_close(model.at(z)(batch.obs), model.act(batch.obs, z), atol=1e-5, rtol=0)


def test_fourier_features_need_a_scale() -> None:
    with pytest.raises(ConfigError, match="FBConfig: fourier counts in standard deviations"):
        FBConfig(obs_dim=3, action_dim=2, fourier=2)
