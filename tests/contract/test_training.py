"""The loop resumes bit for bit, survives interrupts, and refuses what cannot work."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zol import checkpoint
from zol.collect.donut import collect
from zol.common.errors import CheckpointError, DataError
from zol.common.tensors import read_metadata, read_tensors
from zol.data import Batch, Dataset
from zol.data.resident import Resident, Streamed
from zol.fields import Layout
from zol.models.base import model_hash
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.losses import dense_loss
from zol.models.optimisation import frozen
from zol.train import TrainConfig, fit
from zol.train.learned_world import WorldConfig, learn_world
from zol.train.run_folder import RunFolder, read_metrics

SMALL = FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16, backward_hidden=16, normalise_obs=True)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return collect(2_000, torch.Generator().manual_seed(0))


def settings(steps: int, **changes: int) -> TrainConfig:
    fixed: dict[str, Any] = {"steps": steps, "batch_size": 32, "log_every": 5, "save_every": 10}
    return TrainConfig(**fixed | changes)


def learner(**changes: object) -> FBLearner:
    config = SMALL.updated(**changes)
    return FBLearner(fb_network(config, torch.Generator().manual_seed(1)), config)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"discrete": True},
        {"n_step": 5},
        {"actor_averaging": 0.1},
        {"centred": True, "prior_share": 0.4, "averaging": 0.1},
    ],
    ids=str,
)
def test_resume_is_exact(data: Dataset, tmp_path: Path, change: dict) -> None:
    whole = learner(**change)
    fit(whole, data, settings(40), tmp_path / "whole")
    fit(learner(**change), data, settings(20), tmp_path / "parts")
    resumed = learner(**change)
    history = fit(resumed, data, settings(40), tmp_path / "parts")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    logged = [json.loads(line) for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert [line["step"] for line in history] == [5, 10, 15, 20, 25, 30, 35, 40]


@pytest.mark.parametrize(
    ("option", "parts"),
    [("actor_averaging", ("actor",)), ("averaging", ("actor", "forward_map", "backward_map"))],
)
def test_averaged_weights_are_what_is_tested_and_saved(
    data: Dataset, tmp_path: Path, option: str, parts: tuple[str, ...]
) -> None:
    """θ̄ ← (1 − ρ) θ̄ + ρ θ after every step; nothing that is trained hears of it."""
    plain, averaging, rate = learner(), learner(**{option: 0.1}), 0.1
    expected = {name: value.clone() for name, value in plain.model.state_dict().items()}
    update = averaging.update

    def watched(batch: Batch, generator: torch.Generator) -> Any:
        terms = update(batch, generator)
        for name, value in averaging.model.state_dict().items():
            old = expected[name] if name.startswith(parts) else value
            expected[name] = (1 - rate) * old + rate * value
        return terms

    averaging.update = watched  # type: ignore[method-assign]
    fit(plain, data, settings(12))
    fit(averaging, data, settings(12), tmp_path / "run")
    assert model_hash(plain.model) == model_hash(averaging.model)
    saved = checkpoint.load(tmp_path / "run").model
    assert model_hash(saved) == model_hash(averaging.checked) != model_hash(plain.model)
    for name, value in saved.state_dict().items():
        assert torch.allclose(value.double(), expected[name].double(), atol=1e-6), name
        assert torch.equal(value, plain.model.state_dict()[name]) != name.startswith(parts), name


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "scheduler"])
def test_an_interrupt_saves_first(data: Dataset, tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a step, too: the step is finished first, so that the state is one of whole steps."""

    class Interrupted(FBLearner):
        calls = 0

        def update(self, batch: Batch, generator: torch.Generator):
            self.calls += 1
            if self.calls == 18:
                os.kill(os.getpid(), number)
            return super().update(batch, generator)

    stopped = Interrupted(fb_network(SMALL, torch.Generator().manual_seed(1)), SMALL)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt, match="step 18 of 30 is saved, and the same command continues"):
        fit(stopped, data, settings(30), tmp_path / "run")
    assert signal.getsignal(number) is before
    assert read_metadata(tmp_path / "run" / "training.safetensors")["step"] == "18"
    whole, resumed = learner(), learner()
    fit(whole, data, settings(30))
    fit(resumed, data, settings(30), tmp_path / "run")
    assert model_hash(whole.model) == model_hash(resumed.model)


def test_the_run_leaves_a_checkpoint_that_can_be_prompted(data: Dataset, tmp_path: Path) -> None:
    trained = learner()
    fit(trained, data, settings(5), tmp_path / "run", facts={"world": "donut"})
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
        fit(one, data, settings(10, seed=seed))
        runs.append(one.model.get_parameter("forward_map.Fs.0.weight"))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_mistakes_are_explained_before_any_time_is_spent(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 observation and 2 action columns, the model expects 3 and 2"):
        fit(learner(obs_dim=3), data, settings(5))
    with pytest.raises(DataError, match="fewer than one batch"):
        fit(learner(), data, settings(5, batch_size=4_000))
    fit(learner(), data, settings(5), tmp_path / "run")
    with pytest.raises(CheckpointError, match="trained with seed=0, now 1"):
        fit(learner(), data, settings(9, seed=1), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"trained with model.hidden=16, now 32"):
        fit(learner(hidden=32), data, settings(9), tmp_path / "run")
    other = collect(2_000, torch.Generator().manual_seed(1))
    with pytest.raises(CheckpointError, match=f"data={data.fingerprint()}, now {other.fingerprint()}"):
        fit(learner(), other, settings(9), tmp_path / "run")


@pytest.mark.parametrize("name", ["obs", "action"])
def test_data_that_are_not_numbers_are_refused(data: Dataset, tmp_path: Path, name: str) -> None:
    """Whoever wrote them: the importer refuses them, but a file can be damaged later."""
    stored = data.save(tmp_path / "set")
    content = np.array(stored.columns[name])
    content[25, 1], content[1_500, 0] = np.nan, np.inf
    (tmp_path / "set" / f"{name}.bin").write_bytes(content.tobytes())
    with pytest.raises(DataError, match=f"2 rows of '{name}' hold NaN .* first in episode 2, step 3: leave"):
        fit(learner(), Dataset.open(tmp_path / "set"), settings(5), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_else_is_left_alone(data: Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "set")
    with pytest.raises(CheckpointError, match="holds a dataset"):
        fit(learner(), data, settings(5), tmp_path / "set")
    checkpoint.save(learner().model, tmp_path / "finished")
    with pytest.raises(CheckpointError, match="a checkpoint without its training state"):
        fit(learner(), data, settings(5), tmp_path / "finished")
    with RunFolder(tmp_path / "busy"), pytest.raises(DataError, match="another process is writing"):
        fit(learner(), data, settings(5), tmp_path / "busy")


def test_more_steps_can_be_asked_for_until_annealing_has_begun(data: Dataset, tmp_path: Path) -> None:
    def train(steps: int, name: str, save_every: int = 10) -> FBLearner:
        one = learner()
        config = TrainConfig(steps=steps, batch_size=32, log_every=5, save_every=save_every, anneal=0.5)
        fit(one, data, config, tmp_path / name)
        return one

    train(20, "run")
    with pytest.raises(CheckpointError, match="annealed towards steps=20 and has reached 20, now steps=40"):
        train(40, "run")
    # a run that was stopped before its annealing began is the beginning of a longer one
    stop_at(10, tmp_path / "early", data)
    assert model_hash(train(40, "early").model) == model_hash(train(40, "whole").model)


@pytest.mark.parametrize("stopped", [5, 12])
def test_resume_is_exact_before_and_after_b_stands_still(data: Dataset, tmp_path: Path, stopped: int) -> None:
    """It does so at step 8 of 20. From then on the number of steps stays what it is."""
    change = {"freeze_backward": 0.4, "centred": True, "averaging": 0.1}

    def train(name: str, steps: int = 20) -> FBLearner:
        one = learner(**change)
        config = TrainConfig(steps=steps, batch_size=32, log_every=5, save_every=10, anneal=0.2)
        fit(one, data, config, tmp_path / name)
        return one

    stop_at(stopped, tmp_path / "parts", data, anneal=0.2, **change)
    if stopped > 8:
        with pytest.raises(CheckpointError, match="at 40% of its steps=20 training changes; now steps=30"):
            train("parts", steps=30)
    whole, resumed = train("whole"), train("parts")
    assert model_hash(whole.model) == model_hash(resumed.model)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_checkpoints_that_are_kept_are_the_model_at_that_step(data: Dataset, tmp_path: Path) -> None:
    """They open on their own, say their step, and change nothing about the run, resumed or not."""

    def train(name: str, keep_every: int) -> FBLearner:
        one = learner()
        config = TrainConfig(steps=20, batch_size=32, log_every=5, save_every=10, keep_every=keep_every)
        fit(one, data, config, tmp_path / name)
        return one

    plain, keeping = train("plain", 0), train("keeping", 5)
    assert model_hash(plain.model) == model_hash(keeping.model)
    assert not (tmp_path / "plain" / "kept").exists()
    found = sorted(path.name for path in (tmp_path / "keeping" / "kept").iterdir())
    assert found == ["10", "15", "20", "5"]
    stop_at(10, tmp_path / "middle", data, anneal=0.0)
    for step in (5, 10, 20):
        kept = checkpoint.load(tmp_path / "keeping" / "kept" / str(step))
        assert kept.facts["steps"] == step
        assert len(kept.prompt["obs"]) > 0
    kept = checkpoint.load(tmp_path / "keeping" / "kept" / "20")
    assert model_hash(kept.model) == model_hash(keeping.model)
    config = TrainConfig(steps=20, batch_size=32, log_every=5, save_every=10, keep_every=5)
    fit(learner(), data, config, tmp_path / "middle")  # resumed at step 10
    assert not (tmp_path / "middle" / "kept" / "5").exists()
    halves = [checkpoint.load(tmp_path / run / "kept" / "15").model for run in ("middle", "keeping")]
    assert model_hash(halves[0]) == model_hash(halves[1])


def stop_at(step: int, path: Path, data: Dataset, anneal: float = 0.5, **change: object) -> None:
    def interrupt(now: int) -> dict[str, float]:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)
        return {}

    config = TrainConfig(steps=20, batch_size=32, log_every=5, save_every=10, anneal=anneal, eval_every=step)
    with pytest.raises(KeyboardInterrupt):
        fit(learner(**change), data, config, path, on_eval=interrupt)


def test_divergence_is_named_and_the_last_good_state_stays(data: Dataset, tmp_path: Path) -> None:
    fit(learner(), data, settings(10), tmp_path / "run")
    good = (tmp_path / "run" / "training.safetensors").read_bytes()

    class Broken(FBLearner):
        def update(self, batch: Batch, generator: torch.Generator):
            with torch.no_grad():
                self.model.get_parameter("forward_map.Fs.0.weight").fill_(torch.nan)
            return super().update(batch, generator)

    with pytest.raises(DataError, match="diverged at step 15"):
        fit(Broken(learner().model, SMALL), data, settings(20), tmp_path / "run")
    assert (tmp_path / "run" / "training.safetensors").read_bytes() == good


def test_tests_have_their_own_rhythm(data: Dataset, tmp_path: Path) -> None:
    asked = []

    def test(step: int) -> dict[str, float]:
        asked.append(step)
        return {"return/mean": 1.0}

    with_tests = learner()
    lines = fit(with_tests, data, settings(20, eval_every=8), tmp_path / "run", on_eval=test)
    assert asked == [0, 8, 16, 20]
    assert [line["step"] for line in lines] == [0, 5, 8, 10, 15, 16, 20]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 15, 20]
    assert [line["step"] for line in lines if "return/mean" in line] == asked
    fit(learner(), data, settings(30, eval_every=8), tmp_path / "run", on_eval=test)
    assert asked == [0, 8, 16, 20, 24, 30]  # neither the beginning nor what is done is tested again
    without = learner()
    fit(without, data, settings(20))
    assert model_hash(without.model) == model_hash(with_tests.model)  # tests touch nothing


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"step": 7, "loss": "low"}', "line 2 of .* has loss = 'low'; expected a number"),
        ('{"loss": 1.0}', "line 2 of .* has step = None"),
        ('{"step": 1' + "0" * 40 + "}", "41 digits"),
        ('{"step": ' + "[" * 100_000, "nested"),
        ('{"step": 7, "lo', "line 2 of .* is not valid JSON"),
        ("[1]", "holds a list"),
    ],
)
def test_a_line_that_makes_no_sense_is_not_passed_over(tmp_path: Path, line: str, what: str) -> None:
    """The lines after it would be lost when the run goes on."""
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 5, "loss": NaN}}\n{line}\n{{"step": 10}}\n')
    with pytest.raises(CheckpointError, match=what):
        read_metrics(tmp_path)


@pytest.mark.parametrize("torn", ['{"step": 7, "lo', "\0" * 5000, "\0" * 9 + '\n{"step": 9}\n'])
def test_what_a_power_cut_leaves_is_the_end(tmp_path: Path, torn: str) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": NaN}\n' + torn)
    assert [line["step"] for line in read_metrics(tmp_path)] == [5]


def test_a_torn_last_line_is_cut(data: Dataset, tmp_path: Path) -> None:
    fit(learner(), data, settings(10), tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 15, "loss": 1.0}\n{"step": 20, "lo')
    fit(learner(), data, settings(20), tmp_path / "run")
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [5, 10, 15, 20]
    assert read_metrics(tmp_path / "run")[2]["loss"] != 1.0


def test_the_run_says_where_it_comes_from(data: Dataset, tmp_path: Path) -> None:
    fit(learner(), data, settings(5), tmp_path / "run", facts={"world": "donut"})
    fit(learner(), data, settings(10), tmp_path / "run", facts={"world": "donut"})
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert found["settings"]["model.hidden"] == 16
    assert found["settings"]["data"] == data.fingerprint()
    assert [session["from_step"] for session in found["sessions"]] == [0, 5]
    assert {"command", "commit", "cpu", "torch"} <= set(found["sessions"][0])
    card = (tmp_path / "run" / "README.md").read_text()
    for fact in ("donut", data.fingerprint(), "| from step 5 |", "commit", "covariance_gap", "## Limits"):
        assert fact in card


def test_names_of_the_training_state_stay(data: Dataset, tmp_path: Path) -> None:
    """Runs that were begun by earlier versions go on: settings and tensors are found by these names."""
    fit(learner(), data, settings(5), tmp_path / "run")
    state = read_tensors(tmp_path / "run" / "training.safetensors")
    parts = {".".join(name.split(".")[:2]) for name in state}
    assert parts == {
        "generator",
        "model.actor",
        "model.backward_map",
        "model.forward_map",
        "model.normaliser",
        "learner.actor_optimiser",
        "learner.backward_optimiser",
        "learner.forward_optimiser",
        "learner.target_backward",
        "learner.target_forward",
    }
    assert "learner.forward_optimiser.0.exp_avg" in state
    assert "model.normaliser.running_mean" in state
    stored = json.loads(read_metadata(tmp_path / "run" / "training.safetensors")["settings"])
    own = {f"model.{name}" for name in FBConfig.model_fields if name not in FBConfig.added}
    assert set(stored) == own | set(TrainConfig.model_fields) | {"data", "device"}


def test_data_on_the_device_give_the_same_batches(data: Dataset) -> None:
    uneven = Dataset.from_arrays(
        obs=np.arange(20.0).reshape(10, 2),
        action=np.arange(10.0).reshape(10, 1) / 10,
        next_obs=np.arange(20.0).reshape(10, 2) + 1,
        terminated=[0, 0, 1, 0, 0, 0, 0, 0, 0, 1],
    )
    for dataset in (data, uneven):
        steps = torch.randint(len(dataset), (500,), generator=torch.Generator().manual_seed(0))
        device = torch.device("cpu")
        here, there = (source(dataset, device).take(steps) for source in (Resident, Streamed))
        for name in ("obs", "action", "next_obs", "terminated"):
            assert torch.equal(getattr(here, name), getattr(there, name)), name


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
    [
        {"pessimism": 0.5},
        {"q_loss": 0.1},
        {"q_loss": 0.1, "n_step": 3},
        {"actor_pessimism": 0.5},
        {"members": 1, "pessimism": 0.5},
    ],
    ids=str,
)
def test_every_option_trains(data: Dataset, change: dict) -> None:
    history = fit(learner(**change), data, settings(10))
    assert all(value == value for value in history[-1].values())


def test_gram_and_dense_updates_agree(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """One update with the Gram loss equals one with the N×N loss of the same (mean) target."""
    results = []
    for dense in (False, True):
        one = FBLearner(fb_network(SMALL, torch.Generator().manual_seed(1)).double(), SMALL)
        batch = data.sample(64, torch.Generator().manual_seed(2))
        batch = Batch(batch.obs.double(), batch.action.double(), batch.next_obs.double(), batch.terminated)
        with monkeypatch.context() as patch:
            if dense:
                patch.setattr(
                    "zol.models.fb.gram_loss",
                    lambda F, B, tF, tB, g, m: dense_loss(F, B, tF @ tB.mT, g, m),
                )
            one.update(batch, torch.Generator().manual_seed(3))
        results.append(one.model.state_dict())
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-8, atol=1e-10)


def test_stretches_shorten_as_learning_rates_fall(data: Dataset) -> None:
    """Their bias is gone at the end."""
    seen: list[int] = []

    class Watched(FBLearner):
        def update(self, batch: Batch, generator: torch.Generator):
            seen.append(1 if batch.length is None else int(batch.length.max()))
            return super().update(batch, generator)

    config = SMALL.updated(n_step=8)
    one = Watched(fb_network(config, torch.Generator().manual_seed(1)), config)
    fit(one, data, TrainConfig(steps=16, batch_size=64, anneal=0.5))
    assert seen == [8] * 9 + [7, 6, 5, 4, 3, 2, 1]


def test_a_learned_world_resumes_like_any_other_run(data: Dataset, tmp_path: Path) -> None:
    """Its settings hold tuples, which come back from a file as lists."""

    def learned(out: str, steps: int) -> dict[str, Tensor]:
        config = WorldConfig(steps=steps, batch_size=16, width=8, anneal=0.0)
        return learn_world(data, Layout.plain(data.obs_dim), config, tmp_path / out).dynamics.state_dict()

    learned("twice", 5)
    resumed, whole = learned("twice", 10), learned("once", 10)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
