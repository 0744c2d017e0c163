"""Data from the policies of a trained model: what is stored, exact resume, whose latents, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zol import checkpoint
from zol.checkpoint import Checkpoint
from zol.cli import main
from zol.collect.donut import collect
from zol.collect.explore import ExploreConfig, explore
from zol.collect.practised import PractisedConfig, practise
from zol.common.errors import ZolError
from zol.data import Dataset
from zol.models import MODELS
from zol.models.prior_features import PriorFeaturesLearner
from zol.models.trained_latents import trained_latents
from zol.testing import check_dataset
from zol.train import pretrain, pretrain_by_practice
from zol.worlds.base import World
from zol.worlds.donut import Donut
from zol.worlds.tabular import corridor

SMALL: dict[str, Any] = {"z_dim": 5, "hidden": 16, "backward_hidden": 16, "batch_size": 32, "steps": 2}
ACTING = PractisedConfig(latent_steps=40)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    data = collect(500, torch.Generator().manual_seed(0))
    pretrain(data, "fb", out=folder, dynamics_steps=0, **SMALL)
    return folder


def played(
    found: Checkpoint, out: Path, world: World | None = None, config: PractisedConfig = ACTING, **size: Any
) -> Dataset:
    size = {"steps": 900, "envs": 4} | size
    return practise(world or Donut(), found.model, found.facts, found.prompt["obs"], out, config, **size)


def test_what_is_stored(trained: Path, tmp_path: Path) -> None:
    found = checkpoint.load(trained)
    data = played(found, tmp_path / "set")
    check_dataset(data)
    assert data.lengths.tolist() == [100] * 9
    assert "physics" in data.columns
    known = data.provenance
    assert (known["source"], known["how"], known["model"]) == ("practice", "practice", "fb")
    assert known["weights"] == found.facts["weights"]
    assert known["config"]["latent_steps"] == 40
    assert known["counts"] == {"latents": 3 * 9}


class Stopping(Donut):
    """The donut until somebody presses Ctrl-C."""

    left = 130

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().step(action)


def test_an_interrupted_collection_goes_on_exactly(trained: Path, tmp_path: Path) -> None:
    found = checkpoint.load(trained)
    whole = played(found, tmp_path / "whole").fingerprint()
    with pytest.raises(KeyboardInterrupt):
        played(found, tmp_path / "cut", world=Stopping())
    assert Dataset.open(tmp_path / "cut").episodes == 4
    assert played(found, tmp_path / "cut").fingerprint() == whole
    assert played(found, tmp_path / "other", seed=1).fingerprint() != whole


def test_some_environments_act_at_random(trained: Path, tmp_path: Path) -> None:
    """Without noise a policy's actions change with the state, slowly; those at random jump."""
    found = checkpoint.load(trained)
    calm = PractisedConfig(latent_steps=100, noise_range=(0.0, 0.0), random_share=0.5)
    data = played(found, tmp_path / "set", config=calm, steps=400)
    jumps = [float(np.abs(np.diff(data.episode(k)["action"][:-1], axis=0)).mean()) for k in range(4)]
    assert max(jumps[:2]) < 0.2 < 0.5 < min(jumps[2:])


def test_worlds_with_terminal_states(tmp_path: Path) -> None:
    world = corridor()
    data = explore(world, tmp_path / "data", ExploreConfig(steps=300, envs=5, how="random"))
    agent = pretrain(data, "fb", dynamics_steps=0, **SMALL)
    found = played(agent.checkpoint, tmp_path / "set", world=world, steps=200)
    check_dataset(found)
    assert len(found) >= 200
    assert bool(found.columns["terminated"].any())
    assert int(found.lengths.min()) < 30


def test_prompts_of_a_prior_are_its_latents() -> None:
    settings = SMALL | {"rewards": 16, "feature_steps": 2, "envs": 4, "episode_length": 20}
    agent = pretrain_by_practice("prior_features", "donut", random_steps=100, **settings)
    found = agent.checkpoint
    states = found.prompt["obs"]
    latents = trained_latents(found.model, found.facts, states, Donut.layout, 3)
    z = latents(50, torch.Generator().manual_seed(0))
    entry = MODELS["prior_features"]
    learner = entry.learner(found.model, entry.config(**found.facts["settings"]))
    assert isinstance(learner, PriorFeaturesLearner)
    learner.use_layout(Donut.layout)
    learner.recall(states, torch.Generator().manual_seed(3))
    assert bool((z.unsqueeze(1) == learner.space.latents).all(-1).any(-1).all())
    assert len(z.unique(dim=0)) > 8


def test_models_without_a_sample_or_settings(trained: Path) -> None:
    found, g = checkpoint.load(trained), torch.Generator().manual_seed(0)
    states = found.prompt["obs"]
    foreign = trained_latents(found.model, {"model": "somebody", "settings": {}}, states, Donut.layout, 0)
    for z in (foreign(40, g), trained_latents(found.model, found.facts, None, Donut.layout, 0)(40, g)):
        assert torch.allclose(z.norm(dim=1), torch.tensor(5.0).sqrt(), atol=1e-4)
    near = torch.cdist(foreign(200, g), found.model.project(found.model.backward(states))).amin(1) < 1e-4
    assert 70 < int(near.sum()) < 130


def test_commands_and_refusals(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = checkpoint.load(trained)
    out = tmp_path / "set"
    words = ["explore", "donut", "--out", str(out), "--steps", "300", "--envs", "3"]
    main([*words, "--how", "practice", "--model", str(trained), "--latent-steps", "40"])
    assert "300 transitions in 3 episodes; latents 9" in " ".join(capsys.readouterr().out.split())
    assert Dataset.open(out).fingerprint() == played(found, tmp_path / "api", steps=300, envs=3).fingerprint()
    with pytest.raises(ZolError, match="was made with config="):
        played(found, out, config=ACTING.updated(latent_steps=20), steps=300, envs=3)
    for wrong in (["--how", "practice"], ["--model", str(trained)]):
        with pytest.raises(SystemExit):
            main([*words, *wrong])
        assert "--how practice lets a trained model act" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ZolError, match="the model 2 and 2"):
        played(found, tmp_path / "no", world=corridor())
