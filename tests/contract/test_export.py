"""ONNX equals torch; the contract says what a robot needs to know."""

import json
from typing import Any

import foreign_files as files
import numpy as np
import pytest
import torch
from torch import nn

from zol.checkpoint import zoo
from zol.common.errors import CheckpointError, DataError, ZolError
from zol.models import MODELS
from zol.models.base import Latent, model_hash
from zol.models.fb import FBConfig, fb_network
from zol.models.foreign import load_foreign
from zol.models.network import Network

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from zol.export import export  # noqa: E402
from zol.export.graph import Policy as zol_policy  # noqa: E402
from zol.export.graph import to_onnx as graph_of  # noqa: E402
from zol.export.parity import compare  # noqa: E402

N = 10_000


def latent(model, task="walk", seed=0) -> Latent:
    z = model.project(torch.randn(model.z_dim, generator=torch.Generator().manual_seed(seed)))
    return Latent(z, model_hash(model), task, "zol")


def run(path, **feed) -> np.ndarray:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in feed.items()})[0]


@pytest.fixture(scope="module")
def fb() -> Network:
    config = FBConfig(obs_dim=24, action_dim=6, z_dim=50, hidden=64, normalise_obs=True)
    model = fb_network(config, torch.Generator().manual_seed(0)).eval()
    model.update_statistics(3 + 2 * torch.randn(500, 24, generator=torch.Generator().manual_seed(1)))
    return model


def test_free_latent(tmp_path, fb):
    given = latent(fb)
    result = export(fb, tmp_path, [given], rate=40, action_range=([-2.0] * 6, [1.0] * 6))
    generator = torch.Generator().manual_seed(2)
    obs = 3 + 2 * torch.randn(N, 24, generator=generator)
    z = fb.project(torch.randn(N, 50, generator=generator))
    with torch.no_grad():
        expected = fb.act(obs, z).numpy()
    assert np.abs(run(tmp_path / "policy.onnx", obs=obs, z=z) - expected).max() < 1e-5
    assert run(tmp_path / "policy.onnx", obs=obs[:1], z=z[:1]).shape == (1, 6)
    contract = json.loads((tmp_path / "contract.json").read_text())
    assert contract["model"]["hash"] == model_hash(fb)
    assert contract["rate_hz"] == 40
    assert contract["action"]["low"] == [-2.0] * 6
    assert contract["parity"] == {
        "inputs": N,
        "largest_difference": result.parity.difference,
        "onnx_from_float64": result.parity.onnx,
        "torch_from_float64": result.parity.torch,
    }
    assert result.parity.difference < 1e-5
    assert contract["latency_ms"]["median"] > 0
    (row,) = json.loads((tmp_path / "latents.json").read_text())
    assert row["task"] == "walk"
    assert torch.equal(torch.tensor(row["z"]), given.z)


FLOW: dict[str, Any] = {"actor": "flow", "bc": 0.5, "flow_hidden": 8, "flow_layers": 2}
EXPORTED: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in MODELS} | {
    f"{name} with a flow": (name, FLOW) for name in ("fb", "td_jepa")
}


@pytest.mark.parametrize("which", EXPORTED)
def test_every_model_is_exported(tmp_path, which):
    name, settings = EXPORTED[which]
    entry = MODELS[name]
    config = entry.config(
        obs_dim=5, action_dim=2, z_dim=6, hidden=16, backward_hidden=16, normalise_obs=True, **settings
    )
    model = entry.network(config, torch.Generator().manual_seed(0)).eval()
    model.update_statistics(3 + 2 * torch.randn(500, 5, generator=torch.Generator().manual_seed(1)))
    export(model, tmp_path, [latent(model)])
    generator = torch.Generator().manual_seed(2)
    obs = 3 + 2 * torch.randn(500, 5, generator=generator)
    z = model.project(torch.randn(500, 6, generator=generator))
    with torch.no_grad():
        expected = (model.act(obs, z, torch.zeros(500, 2)) if settings else model.act(obs, z)).numpy()
    assert np.abs(run(tmp_path / "policy.onnx", obs=obs, z=z) - expected).max() < 1e-5


def test_fixed_latents_of_a_foreign_model(tmp_path):
    config, stored = files.bfm_zero()
    folder = files.write(tmp_path / "model", config, stored, files.BFM_KWARGS)
    model = load_foreign(folder, discount=0.98)
    given = [latent(model, "walk forwards!", 0), latent(model, "walk forwards!", 1)]
    result = export(model, tmp_path / "out", given, fixed=True)
    assert result.graphs == ("policy-walk-forwards-zol-0.onnx", "policy-walk-forwards-zol-1.onnx")
    obs = torch.randn(N, model.obs_dim, generator=torch.Generator().manual_seed(3))
    for graph, own in zip(result.graphs, given, strict=True):
        with torch.no_grad():
            expected = model.act(obs, own.z).numpy()
        assert np.abs(run(tmp_path / "out" / graph, obs=obs) - expected).max() < 1e-5
    contract = json.loads((tmp_path / "out" / "contract.json").read_text())
    assert [f["name"] for f in contract["observation"]["fields"]] == list(files.FIELDS)
    assert contract["latent"]["input"] is None


def test_command_line(tmp_path, capsys):
    from zol.cli.export import export as command

    config, stored = files.metamotivo(residual=True)
    folder = files.write(tmp_path / "m", config, stored)
    command(str(folder), tmp_path / "out", discount=0.98)
    said = " ".join(capsys.readouterr().out.split())
    assert "away from float64" in said
    assert "torch's own float32" in said
    assert (tmp_path / "out" / "policy.onnx").exists()


def test_what_cannot_be_exported_is_refused(tmp_path, fb):
    stranger = Latent(torch.zeros(50), "another model", "walk", "zol")
    with pytest.raises(CheckpointError, match="was made for model"):
        export(fb, tmp_path, [stranger])
    with pytest.raises(DataError, match="none given"):
        export(fb, tmp_path, fixed=True)
    with pytest.raises(DataError, match="wrap it first"):
        export(nn.Linear(2, 2), tmp_path)
    with pytest.raises(DataError, match=r"expected \[N, 24\]"):
        export(fb, tmp_path, obs=torch.zeros(3, 2))


def damaged(data: bytes, change) -> bytes:
    """The same graph, with its largest weight matrix changed."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_from_string(data)
    largest = max(graph.graph.initializer, key=lambda weight: np.prod(weight.dims))
    values = change(numpy_helper.to_array(largest).copy())
    largest.CopyFrom(numpy_helper.from_array(values, largest.name))
    return graph.SerializeToString()


def one_weight(values: np.ndarray) -> np.ndarray:
    values.flat[np.abs(values).argmax()] += 1e-3
    return values


def not_a_number(values: np.ndarray) -> np.ndarray:
    values.flat[0] = np.nan
    return values


@pytest.mark.parametrize("change", [one_weight, not_a_number])
def test_a_graph_that_differs_is_not_written(tmp_path, fb, monkeypatch, change):
    monkeypatch.setattr("zol.export.to_onnx", lambda *given: damaged(graph_of(*given), change))
    with pytest.raises(ZolError, match=r"was not written: ONNX is .* away from float64.*torch's own float32"):
        export(fb, tmp_path / "none")
    assert not list((tmp_path / "none").glob("*.onnx"))


def test_an_actor_that_draws_random_numbers_is_not_rounding(tmp_path, fb, monkeypatch):
    """Its float32 and float64 differ by far more than rounding, which must not widen the bound."""
    act = Network.act

    def noisy(model, obs, z):
        return act(model, obs, z) + 0.1 * torch.rand(obs.shape[0], 1)

    policy = zol_policy(fb)
    data = graph_of(policy, fb)
    monkeypatch.setattr(Network, "act", noisy)
    parity = compare(policy, data, torch.randn(100, 24), fb)
    assert parity.torch > 0.01
    assert not parity.holds


def test_an_actor_that_insists_on_float32_keeps_the_plain_bound(fb, monkeypatch):
    act = Network.act
    policy = zol_policy(fb)
    data = graph_of(policy, fb)

    def insisting(model, obs, z):
        if obs.dtype != torch.float32:
            raise RuntimeError("expected m1 and m2 to have the same dtype")
        return act(model, obs, z)

    monkeypatch.setattr(Network, "act", insisting)
    obs = torch.randn(100, 24, generator=torch.Generator().manual_seed(4))
    parity = compare(policy, data, obs, fb)
    assert parity.torch == 0
    assert parity.allowed == 1e-5
    assert parity.holds
    assert not compare(policy, damaged(data, one_weight), obs, fb).holds


@pytest.mark.parametrize("name", zoo.names())
def test_zoo_models_can_be_exported(tmp_path, name):
    """Torch's float32 rounds by up to 2e-5 there; ONNX is no farther from float64 than twice that."""
    import zol

    result = zol.load(name).export(tmp_path / name)
    assert (tmp_path / name / "policy.onnx").exists()
    assert result.parity.holds
    assert result.parity.onnx < 1e-4
