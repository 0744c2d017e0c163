"""Somebody's network under other names: gradients reach z, the original is left alone."""

from typing import Any

import pytest
import torch
from torch import nn

from zol.adapt import ZOLConfig, zol_search
from zol.common.errors import CheckpointError, DataError
from zol.evidence import Evidence
from zol.models.base import Model, model_hash
from zol.models.wrap import wrap

O, A, D = 5, 2, 4


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.F = nn.Linear(O + D + A, 2 * D)
        self.pi = nn.Linear(O + D, A)
        self.B = nn.Linear(O, D)
        self.drop = nn.Dropout(0.5)

    @torch.no_grad()
    def policy(self, obs, z):
        return torch.tanh(self.pi(self.drop(torch.cat([obs, z], -1))))


class Net(nn.Module):
    """Methods as published code has them: no_grad on the outside and inside, batches of rows only."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body()

    @torch.no_grad()
    def represent(self, obs):
        assert obs.ndim == 2
        return self.body.B(obs)

    @torch.inference_mode()
    def predict(self, obs, z, action):
        assert obs.ndim == 2
        return self.body.F(torch.cat([obs, z, action], -1)).chunk(2, dim=-1)

    def distribution(self, obs, z):
        return torch.distributions.Normal(self.body.policy(obs, z), 0.2)

    def decide(self, obs, z):
        return self.body.policy(obs, z)

    def blocked(self, obs, z):
        with torch.no_grad():
            return self.body.policy(obs, z)


SIZES: dict[str, Any] = {"obs_dim": O, "action_dim": A, "z_dim": D, "discount": 0.9}


def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("act", ["distribution", "decide", lambda m, obs, z: m.body.policy(obs, z)])
def test_a_wrapped_network_is_a_model_with_gradients_to_z(act):
    original = net().train()
    model = wrap(original, backward="represent", forward="predict", act=act, **SIZES)
    assert isinstance(model, Model)
    z = model.project(torch.randn(3, 1, D)).requires_grad_(True)
    obs = torch.randn(6, O)
    action = model.act(obs, z)
    F = model.forward(obs, z, action)
    assert F.shape == (2, 3, 6, D)
    assert model.backward(obs).shape == (6, D)
    (gradient,) = torch.autograd.grad(F.sum(), z)
    assert bool((gradient != 0).all())
    assert original.training  # the view is in evaluation mode, the original as it was
    assert not original.represent(obs).requires_grad
    original.eval()
    torch.testing.assert_close(model.act(obs, z[0]), original.decide(obs, z[0, 0].expand(6, D)))


def test_weights_are_shared_and_hashed():
    original = net()
    model = wrap(original, backward="represent", forward="predict", act="decide", **SIZES)
    before = model_hash(model)
    with torch.no_grad():
        original.body.B.weight.zero_()
    assert bool((model.backward(torch.randn(2, O)) == original.body.B.bias).all())
    assert model_hash(model) != before


def test_zol_moves_the_latents_of_a_wrapped_network():
    model = wrap(net(), backward="represent", forward="predict", act="decide", **SIZES)
    obs = torch.randn(200, O, generator=torch.Generator().manual_seed(0))
    evidence = Evidence(("x",), obs, obs[:, :1].T.contiguous(), obs[:16])
    start = evidence.prompt(model)
    found = zol_search(model, evidence, start, ZOLConfig(steps=20, learning_rate=0.05, trust_region=0.0))
    assert float(found.distance) > 0


def test_what_cannot_be_searched_is_refused_at_once():
    with pytest.raises(CheckpointError, match="no gradient flows from act"):
        wrap(net(), backward="represent", forward="predict", act="blocked", **SIZES)
    with pytest.raises(CheckpointError, match="has no method 'respond'"):
        wrap(net(), backward="represent", forward="predict", act="respond", **SIZES)
    with pytest.raises(CheckpointError, match="backward gave shape"):
        wrap(net(), backward=lambda m, obs: m.body.B(obs)[:, :2], forward="predict", act="decide", **SIZES)
    with pytest.raises(DataError, match="discount"):
        wrap(net(), backward="represent", forward="predict", act="decide", **(SIZES | {"discount": 1.0}))
