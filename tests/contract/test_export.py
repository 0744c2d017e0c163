"""ONNX equals torch; the contract says what a robot needs to know."""

import json
from typing import Any

import foreign_files as files
import numpy as np
import pytest
import torch
from torch import nn

from zol.common.errors import CheckpointError, DataError, ZolError
from zol.models import MODELS
from zol.models.base import Latent, model_hash
from zol.models.fb import FBConfig, fb_network
from zol.models.foreign import load_foreign
from zol.models.network import Network

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from zol.export import export  # noqa: E402

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
    assert contract["parity"] == {"inputs": N, "largest_difference": result.error}
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
    assert "ONNX equals torch" in capsys.readouterr().out
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


def test_a_graph_that_differs_is_not_written(tmp_path, fb, monkeypatch):
    import zol.export

    monkeypatch.setattr(zol.export, "_compare", lambda *args: (0.1, 1.0))
    with pytest.raises(ZolError, match="was not written"):
        export(fb, tmp_path / "none")
    assert not list((tmp_path / "none").glob("*.onnx"))
