"""Every model keeps the contract; checkpoints are data, bit-equal and refused when damaged."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from zol import checkpoint
from zol.common import files
from zol.common.errors import CheckpointError
from zol.common.tensors import read_tensors
from zol.models.base import Latent, Measure, identity
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.layers import Normaliser
from zol.models.network import Network
from zol.testing import check_model
from zol.testing.exact import ExactFB
from zol.worlds.tabular import chain

SMALL = FBConfig(obs_dim=5, action_dim=3, z_dim=7, hidden=16, backward_hidden=12)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"members": 1},
        {"members": 4},
        {"residual": True, "hidden_layers": 2},
        {"embedding_layers": 4},
        {"normalise_obs": True},
        {"backward_layers": 0},
        {"backward_norm": False},
        {"discrete": True},
    ],
    ids=str,
)
def test_fb_keeps_the_contract(change: dict) -> None:
    check_model(fb_network(SMALL.updated(**change)))


def test_exact_model_keeps_the_contract() -> None:
    mdp = chain()
    check_model(ExactFB(mdp, torch.full((8,), 1 / 8, dtype=torch.float64)), obs=torch.eye(8))


def test_a_broken_model_is_caught() -> None:
    class Stubborn(Network):
        def act(self, obs: Tensor, z: Tensor, noise: Tensor | None = None) -> Tensor:
            return super().act(obs, z.detach(), noise)

    with pytest.raises(AssertionError, match="act is differentiable"):
        check_model(Stubborn(FBLearner.architecture(SMALL), torch.Generator().manual_seed(0)))


def test_published_parameter_layout() -> None:
    """Names and shapes of the published FB files, so that they load without a second implementation."""
    o, a, d, h, hb, members = 24, 6, 50, 64, 32, 2
    model = fb_network(
        FBConfig(obs_dim=o, action_dim=a, z_dim=d, hidden=h, backward_hidden=hb, hidden_layers=2)
    )
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert shapes["forward_map.embed_z.0.weight"] == (members, o + d, h)
    assert shapes["forward_map.embed_z.0.bias"] == (members, 1, h)
    assert shapes["forward_map.embed_z.1.weight"] == (members, 1, h)
    assert shapes["forward_map.embed_z.3.weight"] == (members, h, h // 2)
    assert shapes["forward_map.embed_sa.0.weight"] == (members, o + a, h)
    assert shapes["forward_map.Fs.0.weight"] == (members, h, h)
    assert shapes["forward_map.Fs.4.weight"] == (members, h, d)
    assert shapes["actor.embed_z.0.weight"] == (h, o + d)
    assert shapes["actor.embed_s.0.weight"] == (h, o)
    assert shapes["actor.policy.4.weight"] == (a, h)
    assert shapes["backward_map.net.0.weight"] == (hb, o)
    assert shapes["backward_map.net.1.weight"] == (hb,)
    assert shapes["backward_map.net.5.weight"] == (d, hb)


def test_towers_are_joined_in_the_published_order() -> None:
    """F joins [sa, z], the actor joins [s, z]: recomputed by hand from the raw weights."""
    model = fb_network(SMALL.updated(members=2)).double()
    obs, z = torch.randn(4, 5).double(), torch.randn(4, 7).double()
    action = torch.randn(4, 3).double()
    w = model.state_dict()

    def tower(prefix: str, x: torch.Tensor, p: int) -> torch.Tensor:
        x = x @ w[f"{prefix}.0.weight"][p] + w[f"{prefix}.0.bias"][p]
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = torch.tanh(x * w[f"{prefix}.1.weight"][p] + w[f"{prefix}.1.bias"][p])
        return torch.relu(x @ w[f"{prefix}.3.weight"][p] + w[f"{prefix}.3.bias"][p])

    for p in range(2):
        sa = tower("forward_map.embed_sa", torch.cat([obs, action], -1), p)
        oz = tower("forward_map.embed_z", torch.cat([obs, z], -1), p)
        x = torch.cat([sa, oz], -1)
        x = torch.relu(x @ w["forward_map.Fs.0.weight"][p] + w["forward_map.Fs.0.bias"][p])
        expected = x @ w["forward_map.Fs.2.weight"][p] + w["forward_map.Fs.2.bias"][p]
        torch.testing.assert_close(model.forward(obs, z, action)[p], expected)


def test_normaliser_is_batchnorm_in_eval_mode() -> None:
    ours, theirs = Normaliser(4), torch.nn.BatchNorm1d(4, affine=False, momentum=0.01)
    for k in range(3):
        x = torch.randn(32, 4, generator=torch.Generator().manual_seed(k)) * 3 + 1
        ours.update(x)
        theirs.train()(x)
    x = torch.randn(5, 4)
    torch.testing.assert_close(ours(x), theirs.eval()(x))
    assert set(ours.state_dict()) == set(theirs.state_dict())


def test_initial_weights_are_orthogonal_with_the_published_gains() -> None:
    model = fb_network(SMALL.updated(hidden=32))
    actor = model.get_parameter("actor.policy.0.weight")
    torch.testing.assert_close(actor @ actor.mT, torch.eye(32), atol=1e-4, rtol=0)
    member = model.get_parameter("forward_map.Fs.0.weight")[1]
    torch.testing.assert_close(member @ member.mT, 2 * torch.eye(32), atol=1e-4, rtol=0)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Network, Path]:
    model = fb_network(SMALL.updated(normalise_obs=True), torch.Generator().manual_seed(3))
    sample = {"obs": torch.randn(10, 5), "starts": torch.randn(4, 5)}
    return model, checkpoint.save(model, tmp_path / "model", prompt=sample, facts={"world": "donut"})


def test_save_load_act_is_bit_equal(saved: tuple[Network, Path]) -> None:
    model, path = saved
    loaded = checkpoint.load(path)
    obs, z = torch.randn(6, 5), torch.randn(6, 7)
    assert torch.equal(loaded.model.act(obs, z), model.act(obs, z))
    assert torch.equal(loaded.model.backward(obs), model.backward(obs))
    assert identity(loaded.model) == identity(model)
    assert loaded.prompt["starts"].shape == (4, 5)
    assert loaded.facts["world"] == "donut"
    assert "donut" in (path / "README.md").read_text()


def damage(path: Path, what: str) -> None:
    weights, config = path / "model.safetensors", path / "config.json"
    if what == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif what == "pickle":
        weights.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    elif what == "missing weights":
        weights.unlink()
    elif what == "missing config":
        config.unlink()
    elif what == "broken json":
        config.write_text("{")
    else:
        facts = json.loads(config.read_text())
        changes = {
            "other size": lambda: facts["network"]["forward"].update(hidden=32),
            "unknown field": lambda: facts["network"].update(z_dims=3),
            "unknown nested field": lambda: facts["network"]["forward"].update(hiden=3),
            "unknown measure": lambda: facts["network"]["measure"].update(begin="next"),
            "impossible measure": lambda: facts["network"]["measure"].update(begins="now"),
            "no network": lambda: facts.pop("network"),
            "newer format": lambda: facts.update(schema=99),
            "other save": lambda: facts.update(weights="0" * 24),
        }
        changes[what]()
        config.write_text(json.dumps(facts))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("truncated", "not a whole safetensors file"),
        ("pickle", "not a whole safetensors file"),
        ("missing weights", "does not exist"),
        ("missing config", "does not exist"),
        ("broken json", "not valid JSON"),
        ("other size", r"has shape .* the config says"),
        ("unknown field", "did you mean 'z_dim'"),
        ("unknown nested field", "did you mean 'hidden'"),
        ("unknown measure", "did you mean 'begins'"),
        ("impossible measure", "begins"),
        ("no network", "no 'network' section"),
        ("newer format", "has format 99"),
        ("other save", "different saves"),
    ],
)
def test_damaged_checkpoints_are_refused_with_the_reason(
    saved: tuple[Network, Path], what: str, words: str
) -> None:
    damage(saved[1], what)
    with pytest.raises((CheckpointError, ValueError), match=words):
        checkpoint.load(saved[1])


def test_a_model_whose_code_is_not_installed_still_opens(tmp_path: Path) -> None:
    """The architecture is in the checkpoint; what trained it is a fact like any other."""
    model = fb_network(SMALL)
    facts = {"model": "of_another_package", "settings": {"temperature": 3}}
    loaded = checkpoint.load(checkpoint.save(model, tmp_path / "model", facts=facts))
    assert loaded.facts["model"] == "of_another_package"
    assert loaded.facts["settings"] == {"temperature": 3}
    assert identity(loaded.model) == identity(model)


def test_the_measure_is_stored_and_read(tmp_path: Path) -> None:
    """Every consumer asks the model for it, so a checkpoint that forgot it would give wrong numbers."""
    measure = Measure(normalised=True, begins="current", offset=0.25)
    model = Network(FBLearner.architecture(SMALL).updated(measure=measure), torch.Generator().manual_seed(0))
    assert checkpoint.load(checkpoint.save(model, tmp_path / "model")).model.measure == measure


def test_loaded_weights_are_frozen_and_learners_wake_what_they_train(saved: tuple[Network, Path]) -> None:
    model = checkpoint.load(saved[1]).model
    assert not any(p.requires_grad for p in model.parameters())
    FBLearner(model, SMALL)
    assert all(p.requires_grad for p in model.parameters())


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"anything")
    with pytest.raises(CheckpointError, match="can run code"):
        read_tensors(path)


def test_a_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"good")
    with pytest.raises(CheckpointError, match="cannot write"):
        files.write_bytes(path / "impossible", b"bad")
    assert path.read_bytes() == b"good"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_latent_survives_a_round_trip_and_refuses_other_models(tmp_path: Path) -> None:
    model, other = fb_network(SMALL), fb_network(SMALL, torch.Generator().manual_seed(9))
    latent = Latent(torch.randn(7), identity(model), "task", "zol", estimate=0.25, config={"steps": 3})
    latent.save(tmp_path / "z.json")
    again = Latent.load(tmp_path / "z.json")
    assert torch.equal(again.require(identity(model)), latent.z)
    assert (again.estimate, again.config) == (0.25, {"steps": 3})
    with pytest.raises(CheckpointError, match="was made for model"):
        again.require(identity(other))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not a latent"):
        Latent.load(tmp_path / "bad.json")


def test_facts_that_are_no_text_are_saved_all_the_same(tmp_path: Path) -> None:
    """The data came from a folder whose name is in another encoding."""
    checkpoint.save(fb_network(SMALL), tmp_path, facts={"source": "caf\udce9", "command": "zol \ud800"})
    assert checkpoint.load(tmp_path).facts["source"] == "caf\udce9"
