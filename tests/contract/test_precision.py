"""Options of a learner that change how it computes, not what."""

from typing import Any

import pytest
import torch
from torch import nn

from zol.data import Batch
from zol.models.fb import FBConfig, FBLearner, fb_network

SMALL = FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16, backward_hidden=16)


def batch() -> Batch:
    g = torch.Generator().manual_seed(0)
    obs, next_obs = torch.randn(2, 64, 3, generator=g)
    return Batch(obs, torch.rand(64, 2, generator=g) * 2 - 1, next_obs, torch.zeros(64, dtype=torch.bool))


def one_step(changes: dict | None = None, **options: Any) -> tuple[FBLearner, dict[str, torch.Tensor]]:
    config = SMALL.updated(**(changes or {}))
    learner = FBLearner(fb_network(config), config, **options)
    return learner, dict(learner.update(batch(), torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("discrete", [False, True])
def test_autocast_keeps_weights_and_losses_in_single_precision(discrete: bool) -> None:
    _, terms = one_step({"discrete": discrete})
    learner, rough = one_step({"discrete": discrete}, autocast=torch.bfloat16)
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}
    assert {term.dtype for term in rough.values()} == {torch.float32}
    assert any(float(rough[name]) != float(terms[name]) for name in terms)  # it did compute in bfloat16
    for name in terms:
        torch.testing.assert_close(rough[name], terms[name], rtol=0.1, atol=0.1)


# torch's own tracing looks at the gradient of every tensor it meets.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled_networks_take_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture only: the C++ of the default backend takes minutes to build."""
    compile_network = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: compile_network(self, backend="eager"))
    plain, terms = one_step()
    compiled, same = one_step(compiled=True)
    torch.testing.assert_close(same, terms, rtol=1e-4, atol=1e-5)
    assert set(compiled.model.state_dict()) == set(plain.model.state_dict())
    assert set(compiled.state_dict()) == set(plain.state_dict())
