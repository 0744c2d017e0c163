"""Models that come with the package, and how a checkpoint becomes one of them."""

import json
from pathlib import Path

import pytest
import torch

import zol
from zol import checkpoint
from zol.checkpoint import zoo
from zol.cli import main
from zol.common.errors import CheckpointError
from zol.models.base import identity
from zol.models.fb import FBConfig, fb_network
from zol.session import packing


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=4, hidden=8))
    sample = {
        "obs": torch.randn(100, 2),
        "action": torch.zeros(100, 2),
        "physics": torch.zeros(100, 2, dtype=torch.float64),
        "starts": torch.randn(300, 2),
    }
    session = {"command": "zol train fb --data /home/me/data/donut --out /runs/a", "from_step": 0}
    facts = {"world": "donut", "seed": 3, "sessions": [session]}
    return checkpoint.save(model, tmp_path / "run", prompt=sample, facts=facts)


def test_packing_keeps_what_test_time_needs(trained: Path, tmp_path: Path) -> None:
    before, after = checkpoint.load(trained), checkpoint.load(zoo.pack(trained, tmp_path / "small", 10))
    assert {name: len(value) for name, value in after.prompt.items()} == {
        "obs": 10,
        "action": 10,
        "starts": 256,
    }
    assert torch.equal(after.prompt["obs"], before.prompt["obs"][:10])
    assert after.facts["weights"] == before.facts["weights"]
    assert after.facts["seed"] == 3
    assert after.facts["sessions"][0]["command"] == "zol train fb --data donut --out a"
    assert "/home" not in (tmp_path / "small" / "README.md").read_text()


def test_a_packed_model_says_what_it_earns_as_it_is_packed(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        ["zoo", "pack", str(trained), "--out", str(tmp_path / "small"), "--samples", "10", "--episodes", "3"]
    )
    facts = checkpoint.load(tmp_path / "small").facts
    assert facts["tested"]["episodes"] == 3
    assert facts["tested"]["command"].endswith("--episodes 3") or "Python" in facts["tested"]["command"]
    agent = zol.load(tmp_path / "small")
    again = agent.evaluate(agent.adapt(None, "fb", seed=1), 3, seed=1)
    for task, mean, random in zip(again.tasks, again.returns.mean(1), again.random.mean(1), strict=True):
        assert list(zoo.returns(facts)[task]) == pytest.approx([mean, random])
    card = (tmp_path / "small" / "README.md").read_text()
    assert "| task | random actions | return [95 %] |" in card
    assert "MB" in capsys.readouterr().out


def test_what_cannot_be_tested_is_said(tmp_path: Path) -> None:
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=4, hidden=8))
    sample = {name: torch.zeros(20, 2) for name in ("obs", "action", "starts")}
    folder = checkpoint.save(model, tmp_path / "run", prompt=sample, facts={})
    with pytest.raises(CheckpointError, match=r"names no world with tasks.*--episodes 0"):
        packing.pack(folder, tmp_path / "small", episodes=2)
    assert not (tmp_path / "small").exists()


def test_a_path_wins_and_a_typo_is_answered(trained: Path) -> None:
    assert zoo.find(trained) == trained
    with pytest.raises(CheckpointError, match="there is no folder 'walkr' here"):
        zoo.find("walkr")


@pytest.mark.parametrize("name", zoo.names())
def test_every_model_says_where_it_comes_from_and_is_small(name: str) -> None:
    folder = zoo.find(name)
    loaded = checkpoint.load(folder)
    assert loaded.facts["world"]
    trained_by = loaded.facts["model"]
    assert trained_by in ("fb", "prior_features")
    # stored results and latents refer to this hash
    assert identity(loaded.model) == json.loads((folder / "config.json").read_text())["weights"]
    assert loaded.facts["sessions"][0]["command"].startswith(f"zol train {trained_by}")
    # rehearsal did not believe the learned world of quadruped_fb, and kept plain FB's latents
    assert (loaded.dynamics is None) == (name == "quadruped_fb")
    assert len(loaded.prompt["obs"]) >= 1000
    assert sum(file.stat().st_size for file in folder.iterdir()) < 10e6
    text = json.dumps(dict(loaded.facts)) + (folder / "README.md").read_text()
    assert "/tmp/" not in text


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    main(["zoo", "list"])
    shown = capsys.readouterr().out
    for name in zoo.names():
        assert name in shown
