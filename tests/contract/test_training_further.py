"""Checkpoints of other projects are trained further by our learner, and remain what they were."""

from pathlib import Path
from typing import Any

import foreign_files as files
import numpy as np
import pytest
import torch

from zol import checkpoint
from zol.cli import main
from zol.common.errors import CheckpointError, DataError
from zol.data import Dataset
from zol.models.base import model_hash
from zol.testing import check_model
from zol.train import pretrain

QUICK: dict[str, Any] = {
    "steps": 20,
    "batch_size": 64,
    "log_every": 1,
    "learning_rate": 1e-3,
    "anneal": 0.0,
    "dynamics_steps": 0,
}
MAKERS = {
    "metamotivo-fb": (lambda: files.metamotivo(cpr=False), None),
    "metamotivo-fb-cpr": (files.metamotivo, None),
    "metamotivo-residual": (lambda: files.metamotivo(residual=True), None),
    "td_jepa-fb-encoder": (files.td_jepa_fb, files.KWARGS),
    "td_jepa-fb": (lambda: files.td_jepa_fb(left=False), files.KWARGS),
    "td_jepa-fb-flow": (lambda: files.td_jepa_fb(flow=True), files.KWARGS),
    "bfm_zero": (files.bfm_zero, files.BFM_KWARGS),
}


def drift(obs_dim: int, seed: int = 0) -> Dataset:
    """Points that actions push around."""
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((400, obs_dim)).astype(np.float32)
    action = rng.uniform(-1, 1, (400, files.A)).astype(np.float32)
    following = 0.9 * obs
    following[:, : files.A] += 0.5 * action
    return Dataset.from_arrays(obs, action, following)


@pytest.fixture(params=MAKERS)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> checkpoint.Checkpoint:
    make, kwargs = MAKERS[request.param]
    config, stored = make()
    return checkpoint.load(files.write(tmp_path / "theirs", config, stored, kwargs), discount=0.9)


def quick(theirs: checkpoint.Checkpoint) -> dict[str, Any]:
    """Settings of a short training; a flow says how strongly it is held to the data."""
    return QUICK | ({"bc": 0.5} if theirs.model.config.noisy_actor else {})


def test_they_learn_and_stay_whole(theirs: checkpoint.Checkpoint, tmp_path: Path) -> None:
    before = {name: value.clone() for name, value in theirs.model.state_dict().items()}
    data = drift(theirs.model.obs_dim)
    trained = pretrain(data, "fb", start_from=theirs, out=tmp_path / "run", **quick(theirs))
    assert all(torch.equal(value, before[name]) for name, value in theirs.model.state_dict().items())
    after = trained.model.state_dict()
    learned = ("forward_map.", "backward_map.", "actor.", "vector_field.", "left.", "normaliser.")
    for name, value in after.items():
        assert torch.equal(value, before[name]) != name.startswith(learned), name
    assert trained.model.config == theirs.model.config
    assert trained.facts["model"] == "fb"
    assert trained.facts["start"].endswith(model_hash(theirs.model))
    again = checkpoint.load(tmp_path / "run").model
    obs = torch.randn(5, again.obs_dim)
    z = again.project(torch.randn(5, again.z_dim))
    assert torch.equal(again.act(obs, z), trained.model.act(obs, z))
    check_model(again)


def test_the_loss_falls(theirs: checkpoint.Checkpoint) -> None:
    """On one batch and with its own targets, so that what falls is the loss and not its noise."""
    from zol.models.fb import FBConfig, FBLearner
    from zol.models.settings import settings_of

    settings = settings_of(theirs.model.config) | {"bc": quick(theirs).get("bc", 0.0)}
    config = FBConfig(**settings, discount=0.9, learning_rate=3e-4)
    learner = FBLearner(theirs.model, config)
    batch = drift(theirs.model.obs_dim).sample(200, torch.Generator().manual_seed(0))
    losses = [float(learner.update(batch, torch.Generator().manual_seed(1))["loss"]) for _ in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_an_interrupted_run_goes_on_exactly(theirs: checkpoint.Checkpoint, tmp_path: Path) -> None:
    data = drift(theirs.model.obs_dim)
    whole = pretrain(data, "fb", start_from=theirs, out=tmp_path / "whole", **quick(theirs))
    pretrain(data, "fb", start_from=theirs, out=tmp_path / "parts", **quick(theirs) | {"steps": 9})
    resumed = pretrain(data, "fb", start_from=theirs, out=tmp_path / "parts", **quick(theirs))
    assert model_hash(whole.model) == model_hash(resumed.model)
    with pytest.raises(CheckpointError, match=r"was trained with model\.start="):
        pretrain(data, "fb", start_from=whole, out=tmp_path / "parts", **quick(theirs))


RELATIVES = {
    "hilp": files.td_jepa_hilp,
    "td_jepa": files.td_jepa_jepa,
    "td_jepa symmetric": lambda: files.td_jepa_jepa(symmetric=True),
}


@pytest.mark.parametrize("which", RELATIVES)
def test_successor_features_of_others_are_trained_further(which: str, tmp_path: Path) -> None:
    config, stored = RELATIVES[which]()
    theirs = checkpoint.load(files.write(tmp_path / "theirs", config, stored, files.KWARGS), discount=0.9)
    rng = np.random.default_rng(0)
    steps = 0.3 * rng.standard_normal((40, 11, files.O)).cumsum(1).astype(np.float32)
    truncated = np.tile(np.arange(10) == 9, 40)
    action = rng.uniform(-1, 1, (400, files.A)).astype(np.float32)
    data = Dataset.from_arrays(
        steps[:, :-1].reshape(-1, files.O), action, steps[:, 1:].reshape(-1, files.O), truncated=truncated
    )
    trained = pretrain(data, which.split()[0], start_from=theirs, out=tmp_path / "run", **QUICK)
    assert trained.model.config == theirs.model.config
    before, after = theirs.model.state_dict(), checkpoint.load(tmp_path / "run").model.state_dict()
    assert all(not torch.equal(after[n], before[n]) for n in before if n.endswith("weight"))
    check_model(trained.model)


def test_a_left_encoder_belongs_to_F(tmp_path: Path) -> None:
    """It is trained with F's rate and has a slow target; the actor's gradient does not reach it."""
    from zol.models.fb import FBConfig, FBLearner
    from zol.models.settings import settings_of

    config, stored = files.td_jepa_fb()
    model = checkpoint.load(files.write(tmp_path, config, stored, files.KWARGS), discount=0.9).model
    settings = FBConfig(**settings_of(model.config), discount=0.9)
    learner = FBLearner(model, settings)
    encoder = list(model.left.parameters())
    assert {id(p) for p in encoder} <= {id(p) for p in learner.forward_optimiser.parameters}
    seen = []
    step = learner.actor_optimiser.step_and_clear

    def spy() -> None:
        seen.append(all(p.grad is None for p in encoder))
        step()

    learner.actor_optimiser.step_and_clear = spy  # type: ignore[method-assign]
    target = [p.clone() for p in learner.target_left.parameters()]
    start = [p.detach().clone() for p in encoder]
    batch = drift(files.O).sample(64, torch.Generator().manual_seed(0))
    learner.update(batch, torch.Generator().manual_seed(1))
    assert seen == [True]
    moved = zip(target, start, encoder, learner.target_left.parameters(), strict=True)
    for slow, begin, now, slower in moved:
        assert not torch.equal(begin, now)
        torch.testing.assert_close(slower, slow + 0.01 * (now - slow))


def test_what_cannot_be_trained_further_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drift(files.O).save(tmp_path / "data")

    def refused(name: str, make, data: Path = tmp_path / "data") -> str:
        folder = tmp_path / name
        if not folder.exists():
            config, stored = make()
            files.write(folder / "model", config, stored, files.KWARGS)
            (folder / "config.json").write_text('{"train": {"discount": 0.9}}')
        words = f"train fb --from {folder} --data {data} --out {tmp_path / 'run'} --steps 5"
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 2
        assert not (tmp_path / "run").exists()
        said = capsys.readouterr().err
        assert said.startswith("zol: ")
        assert said.count("\n") == 1
        return said

    assert "td_jepa/hilp model learns successor features" in refused("hilp", files.td_jepa_hilp)
    assert "td_jepa/td_jepa model learns successor features" in refused("jepa", files.td_jepa_jepa)
    assert "actor=flow with bc=0" in refused("flow", lambda: files.td_jepa_fb(flow=True))
    drift(files.O + 1).save(tmp_path / "wider")
    wide = refused("fb", files.metamotivo, tmp_path / "wider")
    assert (
        "the data have 8 observation and 3 action columns, the checkpoint to start from has 7 and 3" in wide
    )


def test_the_command_trains_further(tmp_path: Path) -> None:
    drift(files.O).save(tmp_path / "data")
    config, stored = files.td_jepa_fb()
    files.write(tmp_path / "agent" / "model", config, stored, files.KWARGS)
    (tmp_path / "agent" / "config.json").write_text('{"train": {"discount": 0.97}}')
    words = f"train fb --from {tmp_path / 'agent'} --data {tmp_path / 'data'} --out {tmp_path / 'run'}"
    main([*words.split(), *["--steps", "5", "--batch-size", "32", "--dynamics-steps", "0"]])
    trained = checkpoint.load(tmp_path / "run")
    assert trained.model.discount == 0.97
    assert trained.model.config.left is not None
    # and our own checkpoint, further still
    words = f"train fb --from {tmp_path / 'run'} --data {tmp_path / 'data'} --out {tmp_path / 'more'}"
    main([*words.split(), *["--steps", "5", "--batch-size", "32", "--dynamics-steps", "0"]])
    assert checkpoint.load(tmp_path / "more").facts["start"] == f"fb {trained.facts['weights']}"


def test_sizes_of_the_network_cannot_be_changed(tmp_path: Path) -> None:
    config, stored = files.metamotivo()
    theirs = checkpoint.load(files.write(tmp_path, config, stored), discount=0.9)
    with pytest.raises(CheckpointError, match="hidden=64 is asked for, but the network to start from has 8"):
        pretrain(drift(files.O), "fb", start_from=theirs, hidden=64, **QUICK)
    with pytest.raises(DataError, match="did you mean 'hidden'"):
        pretrain(drift(files.O), "fb", start_from=theirs, hiden=64, **QUICK)
