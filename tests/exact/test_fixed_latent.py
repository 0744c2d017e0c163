"""The actor with its latent folded in acts like the actor itself."""

from typing import Any

import pytest
import torch

from zol.models.fb import FBConfig, fb_network
from zol.models.fixed_latent import FixedLatentActor, fix_latent
from zol.models.network import Network


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained_like(**settings: Any) -> Network:
    """A model in which no weight, bias or statistic is left at its first value."""
    model = fb_network(FBConfig(obs_dim=5, action_dim=3, z_dim=7, hidden=32, **settings), generator(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator(2)))
        model.update_statistics(3 + 2 * torch.randn(200, 5, generator=generator(3)))
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"embedding_layers": 4, "hidden_layers": 3},
        {"normalise_obs": True},
        {"residual": True},
        {"discrete": True},
        {"actor": "flow", "bc": 1.0, "normalise_obs": True, "embedding_layers": 3},
        {"actor": "flow", "bc": 1.0, "residual": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_same_actions(settings: dict, dtype: torch.dtype, tolerance: float) -> None:
    model = trained_like(**settings).to(dtype)
    z = model.project(torch.randn(4, 1, 7, generator=generator(4), dtype=dtype)).expand(4, 6, 7)
    policy = model.at(z)
    for seed in (5, 6):  # nothing of one call may stay in the next
        obs = torch.randn(4, 6, 5, generator=generator(seed), dtype=dtype)
        with torch.no_grad():
            torch.testing.assert_close(policy(obs), model.act(obs, z), rtol=0, atol=tolerance)


def test_results_of_earlier_calls_stay_as_they_were() -> None:
    model = trained_like()
    policy = model.at(torch.randn(6, 7, generator=generator(4)))
    first = policy(torch.ones(6, 5))
    kept = first.clone()
    policy(torch.zeros(6, 5))
    assert torch.equal(first, kept)


def test_only_actors_of_the_known_shape_are_rearranged() -> None:
    z = torch.randn(6, 7, generator=generator(4))
    assert isinstance(fix_latent(trained_like().actor, z), FixedLatentActor)
    assert isinstance(fix_latent(trained_like(actor="flow", bc=1.0).actor, z), FixedLatentActor)
    assert not isinstance(fix_latent(trained_like(residual=True).actor, z), FixedLatentActor)
