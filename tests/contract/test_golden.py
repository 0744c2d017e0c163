"""Numbers of the first release, kept: what zoo models compute, and what 20 steps of training give.

The values in ``golden.json`` were written by the code before models became one class. On one machine they
were equal to the last bit; here they are compared up to what other processors round differently.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from zol import checkpoint
from zol.checkpoint import zoo
from zol.collect.donut import collect
from zol.models.base import model_hash, policy_at
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.train import TrainConfig, fit

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
SIZES: dict[str, Any] = {"obs_dim": 2, "action_dim": 2, "z_dim": 16, "hidden": 64, "backward_hidden": 48}
TRAINED = {
    "base": FBConfig(**SIZES),
    "everything": FBConfig(
        **SIZES,
        normalise_obs=True,
        fourier=2,
        n_step=5,
        q_loss=0.1,
        pessimism=0.5,
        actor_pessimism=0.5,
        residual=True,
    ),
    "gram": FBConfig(
        **SIZES,
        normalise_obs=True,
        n_step=3,
        actor_pessimism=0.5,
        members=3,
        orthonormality=10.0,
        target_rate=0.05,
    ),
    "discrete": FBConfig(**SIZES, discrete=True),
}


def summary(values: torch.Tensor) -> list[float]:
    """A few numbers that no permutation, sign or scale leaves alone."""
    flat = values.detach().double().flatten()
    ramp = torch.linspace(-1, 1, len(flat), dtype=torch.float64)
    return [float(flat.mean()), float(flat.abs().mean()), float((flat * ramp).mean())]


@pytest.mark.parametrize("name", sorted(GOLDEN["zoo"]))
def test_zoo_models_compute_what_they_always_did(name: str) -> None:
    loaded = checkpoint.load(zoo.find(name))
    model, expected = loaded.model, GOLDEN["zoo"][name]
    assert model_hash(model) == expected["hash"]
    obs = loaded.prompt["obs"][:64]
    z = model.project(torch.randn(5, model.z_dim, generator=torch.Generator().manual_seed(0)))
    action = model.act(obs, z.unsqueeze(1))
    everywhere = z.unsqueeze(1).expand(5, 64, -1)
    found = {
        "act": action,
        "forward": model.forward(obs, z.unsqueeze(1), action),
        "backward": model.backward(obs),
        "rollout": policy_at(model, everywhere)(obs.expand(5, 64, -1)),
    }
    for part, values in found.items():
        torch.testing.assert_close(summary(values), expected[part], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TRAINED)
def test_training_takes_the_steps_it_always_took(name: str) -> None:
    config = TRAINED[name]
    model = fb_network(config, torch.Generator().manual_seed(3))
    training = TrainConfig(steps=20, batch_size=128, seed=1, anneal=0.5, log_every=10)
    data = collect(20_000, torch.Generator().manual_seed(0))
    lines = fit(FBLearner(model, config), data, training)
    expected = GOLDEN["trained"][name]
    for part, values in model.state_dict().items():
        torch.testing.assert_close(summary(values), expected["weights"][part], rtol=1e-3, atol=1e-5)
    assert lines[-1]["loss"] == pytest.approx(expected["loss"], rel=1e-3)
