"""The loop resumes bit for bit, survives interrupts, and refuses what cannot work."""

import json
from pathlib import Path

import pytest
import torch

from zol import checkpoint, files
from zol.data import Batch, Dataset
from zol.errors import CheckpointError, DataError
from zol.models.fb import FB, FBConfig, FBLearner
from zol.models.learning import frozen
from zol.train import TrainConfig, pretrain
from zol.worlds.donut import collect

SMALL = FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16, backward_hidden=16, normalise_obs=True)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return collect(2_000, torch.Generator().manual_seed(0))


def settings(steps: int, **changes: int) -> TrainConfig:
    return TrainConfig(**({"steps": steps, "batch_size": 32, "log_every": 5, "save_every": 10} | changes))


def learner(**changes: object) -> FBLearner:
    return FBLearner(FB(SMALL.but(**changes), torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("change", [{}, {"discrete": True}], ids=["continuous", "discrete"])
def test_resume_is_exact(data: Dataset, tmp_path: Path, change: dict) -> None:
    whole = learner(**change)
    pretrain(whole, data, settings(40), tmp_path / "whole")
    pretrain(learner(**change), data, settings(20), tmp_path / "parts")
    resumed = learner(**change)
    history = pretrain(resumed, data, settings(40), tmp_path / "parts")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    logged = [json.loads(line) for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [line["step"] for line in history] == [5, 10, 15, 20, 25, 30, 35, 40]


def test_an_interrupt_saves_first(data: Dataset, tmp_path: Path) -> None:
    class Interrupted(FBLearner):
        calls = 0

        def update(self, batch: Batch, generator: torch.Generator):
            self.calls += 1
            if self.calls == 18:
                raise KeyboardInterrupt
            return super().update(batch, generator)

    stopped = Interrupted(FB(SMALL, torch.Generator().manual_seed(1)))
    with pytest.raises(KeyboardInterrupt):
        pretrain(stopped, data, settings(30), tmp_path / "run")
    assert files.read_metadata(tmp_path / "run" / "training.safetensors")["step"] == "17"


def test_the_run_leaves_a_checkpoint_that_can_be_prompted(data: Dataset, tmp_path: Path) -> None:
    trained = learner()
    pretrain(trained, data, settings(5), tmp_path / "run", facts={"world": "donut"})
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded.facts["data"] == data.fingerprint()
    assert loaded.prompt["obs"].shape == (2_000, 2)
    assert torch.equal(
        loaded.model.backward(loaded.prompt["obs"]), trained.model.backward(loaded.prompt["obs"])
    )


def test_same_seed_same_weights_other_seed_other_weights(data: Dataset) -> None:
    runs = []
    for seed in (0, 0, 1):
        one = learner()
        pretrain(one, data, settings(10, seed=seed))
        runs.append(one.model.forward_map.Fs[0].weight)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_mistakes_are_explained_before_any_time_is_spent(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 observation and 2 action columns, the model expects 3 and 2"):
        pretrain(FBLearner(FB(SMALL.but(obs_dim=3))), data, settings(5))
    with pytest.raises(DataError, match="fewer than one batch"):
        pretrain(learner(), data, settings(5, batch_size=4_000))
    pretrain(learner(), data, settings(5), tmp_path / "run")
    with pytest.raises(CheckpointError, match="trained with seed=0, now 1"):
        pretrain(learner(), data, settings(9, seed=1), tmp_path / "run")
    with pytest.raises(CheckpointError, match="has shape"):
        pretrain(learner(hidden=32), data, settings(9), tmp_path / "run")


def test_divergence_is_named(data: Dataset) -> None:
    broken = learner()
    with torch.no_grad():
        broken.model.forward_map.Fs[0].weight.fill_(torch.nan)
    with pytest.raises(DataError, match="diverged at step 5"):
        pretrain(broken, data, settings(5))


def test_actor_step_computes_no_gradient_for_F(data: Dataset) -> None:
    """No wasted work: F's weights take part in the actor step without gradients of their own."""
    one = learner()
    seen = []
    original = one.actor_optimiser.step_and_clear

    def spy() -> None:
        seen.append([p.grad is None for p in one.model.forward_map.parameters()])
        original()

    one.actor_optimiser.step_and_clear = spy  # type: ignore[method-assign]
    one.update(data.sample(32, torch.Generator()), torch.Generator())
    assert seen == [[True] * len(seen[0])]
    with frozen(one.model.forward_map):
        assert not any(p.requires_grad for p in one.model.forward_map.parameters())
    assert all(p.requires_grad for p in one.model.forward_map.parameters())


@pytest.mark.parametrize(
    "change",
    [{"pessimism": 0.5}, {"q_loss": 0.1}, {"actor_pessimism": 0.5}, {"members": 1, "pessimism": 0.5}],
    ids=str,
)
def test_every_option_trains(data: Dataset, change: dict) -> None:
    history = pretrain(learner(**change), data, settings(10))
    assert all(value == value for value in history[-1].values())


def test_gram_and_dense_updates_agree(data: Dataset) -> None:
    """One update with the Gram loss equals one with the N×N loss of the same (mean) target."""
    import zol.models.fb as fb

    results = []
    for dense in (False, True):
        one = FBLearner(FB(SMALL, torch.Generator().manual_seed(1)).double())
        batch = data.sample(64, torch.Generator().manual_seed(2))
        batch = Batch(batch.obs.double(), batch.action.double(), batch.next_obs.double(), batch.terminated)
        original = fb.gram_loss
        if dense:
            fb.gram_loss = lambda F, B, tF, tB, g: fb.dense_loss(F, B, tF @ tB.mT, g)
        try:
            one.update(batch, torch.Generator().manual_seed(3))
        finally:
            fb.gram_loss = original
        results.append(one.model.state_dict())
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-8, atol=1e-10)
