"""``zol train fb``: presets and flags, curves, and mistakes that are told before any time is spent."""

import importlib.util
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from zol.cli import main
from zol.cli.train import Settings, fb
from zol.collect.donut import collect
from zol.common.device import choose_threads
from zol.data import Dataset
from zol.models.fb import FBConfig
from zol.train import TrainConfig, presets
from zol.train.run_folder import read_metrics

SMALL = (
    "--steps 20 --batch-size 32 --hidden 16 --backward-hidden 16 --z-dim 6 --log-every 10 --eval-every 10 "
    "--dynamics-steps 0"
)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and everything that was said, in one line."""
    try:
        main(list(words))
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("train") / "set"
    collect(1_000, torch.Generator().manual_seed(0)).save(path)
    return path


def claimed(data: Path, out: Path, world: str | None) -> Path:
    """The same data under the name of another world."""
    original = Dataset.open(data)
    facts = {} if world is None else {"world": world}
    Dataset(original.columns, original.lengths, facts, original.resets).save(out)
    return out


def words(data: Path, out: Path, *more: str) -> list[str]:
    return ["train", "fb", "--data", str(data), "--out", str(out), *SMALL.split(), *more]


def test_the_curve_begins_with_random_actions(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, *words(data, tmp_path / "run", "--episodes", "2"))
    assert code == 0
    assert "preset cpu" in said
    for shown in ("steps/s", "loss", "gap", "return"):
        assert shown in said
    lines = read_metrics(tmp_path / "run")
    tested = [line for line in lines if "return/mean" in line]
    assert [line["step"] for line in tested] == [0, 10, 20]
    assert {"random/square", "random/mean"} <= set(tested[0])
    assert not any("random/mean" in line for line in tested[1:])
    each = [value for name, value in tested[-1].items() if name.startswith("return/") and "mean" not in name]
    assert tested[-1]["return/mean"] == pytest.approx(np.mean(each))
    facts = json.loads((tmp_path / "run" / "config.json").read_text())
    assert facts["world"] == "donut"
    assert facts["training"]["anneal"] == presets.CPU["anneal"]
    assert facts["config"]["learning_rate"] == presets.CPU["learning_rate"]
    assert "| random actions |" in (tmp_path / "run" / "README.md").read_text()
    code, said = run(capsys, "train", "show", str(tmp_path / "run"), "--out", str(tmp_path / "curve.png"))
    assert code == 0
    for shown in ("mean returns", "random", "far_disc", "residual"):
        assert shown in said
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_curve_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "train", "show", str(tmp_path))
    assert code == 2
    assert "has no metrics yet" in said


def test_every_setting_of_the_model_has_a_flag() -> None:
    assert set(Settings.model_fields) == set(FBConfig.model_fields) - {"obs_dim", "action_dim"}
    for name, field in Settings.model_fields.items():
        assert field.default == FBConfig.model_fields[name].default
    # presets name fields that exist, with values that are allowed
    for world in presets.PAPER_WORLDS:
        for preset in ("cpu", "paper"):
            values = presets.settings(preset, world)
            known = set(TrainConfig.model_fields) | set(Settings.model_fields) | {"dynamics_steps"}
            assert set(values) <= known
            TrainConfig(**{k: v for k, v in values.items() if k in TrainConfig.model_fields})
            Settings(**{k: v for k, v in values.items() if k in Settings.model_fields})


def test_a_misspelt_setting_is_corrected(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, *words(data, tmp_path / "run", "--orthonormalty", "3"))
    assert code == 2
    assert "--orthonormality" in said
    assert not (tmp_path / "run").exists()


def defaults(*words: str) -> tuple[TrainConfig, FBConfig]:
    found = inspect.signature(fb(words)).parameters
    return found["training"].default, found["model"].default


def test_presets_know_the_domain_and_flags_win(data: Path, tmp_path: Path) -> None:
    maze = str(claimed(data, tmp_path / "maze", "pointmass"))
    walker = str(claimed(data, tmp_path / "walker", "walker"))
    training, model = defaults("--data", maze, "--preset", "paper")
    assert (training.steps, training.batch_size) == (3_000_000, 1024)
    assert (model.hidden, model.z_dim, model.discount, model.actor_learning_rate) == (1024, 100, 0.99, 1e-6)
    assert defaults("--data", walker, "--preset=paper")[1].discount == 0.98
    assert defaults("--data", walker)[1].discount == 0.98  # the world's own
    assert defaults("--data", maze)[1].discount == 0.995  # the preset's, which the maze needs
    assert defaults("--data", str(data))[1].discount == 0.97
    assert defaults()[1].hidden == presets.CPU["hidden"]
    rates = defaults("--data", maze, "--preset", "paper", "--learning_rate", "2e-3")[1]
    assert rates.learning_rate == rates.backward_learning_rate == rates.actor_learning_rate == 2e-3


def test_the_published_preset_needs_a_published_domain(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, *words(data, tmp_path / "run", "--preset", "paper"))
    assert code == 2
    assert "no domain with published settings called 'donut'" in said
    nameless = claimed(data, tmp_path / "nameless", None)
    code, said = run(capsys, *words(nameless, tmp_path / "run", "--preset", "paper"))
    assert code == 2
    assert "do not name their world" in said


def test_worlds_that_cannot_be_tested_in(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for world, expected in {
        "wakler": "did you mean 'walker'?",
        "walker": "2 observation and 2 action columns, their world 'walker' has 24 and 6",
    }.items():
        source = claimed(data, tmp_path / world, world)
        code, said = run(capsys, *words(source, tmp_path / "run"))
        assert code == 2
        assert expected in said
        assert "--episodes 0 trains without testing" in said
        assert not (tmp_path / "run").exists()
    nameless = claimed(data, tmp_path / "nameless", None)
    code, said = run(capsys, *words(nameless, tmp_path / "run", "--episodes", "2"))
    assert code == 2
    assert "do not name the world" in said
    code, _ = run(capsys, *words(nameless, tmp_path / "run"))
    assert code == 0
    assert not any("return/mean" in line for line in read_metrics(tmp_path / "run"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda", "--device cpu trains here"),
        ("cuda:3", "--device cpu trains here"),
        ("gpu", "no device is called 'gpu': auto, cpu, cuda"),
        ("meta", "not supported"),
    ],
)
def test_a_missing_device_is_said_at_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str, expected: str
) -> None:
    code, said = run(capsys, *words(data, tmp_path / "run", "--device", device))
    assert code == 2
    assert expected in said
    assert not (tmp_path / "run").exists()


def test_other_mistakes_are_one_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, expected in {
        ("--batch-size", "4000"): "1000 transitions are fewer than one batch of 4000",
        ("--discount", "1.5"): "discount",
        ("--learning-rate", "fast"): "--learning-rate fast is not a number",
    }.items():
        code, said = run(capsys, *words(data, tmp_path / "run", *more))
        assert code == 2
        assert expected in said
        assert "Traceback" not in said
    assert run(capsys, *words(data, tmp_path / "run", "--episodes", "0"))[0] == 0
    code, said = run(capsys, *words(data, tmp_path / "run", "--episodes", "0", "--target-rate", "0.5"))
    assert code == 2
    assert "was trained with model.target_rate=0.05, now 0.5 is asked for" in said


def test_threads_are_not_wasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr("os.getloadavg", lambda: (2.2, 0.0, 0.0), raising=False)
    assert choose_threads(1024 * 1024 * 1024) == 6  # what others leave free
    assert choose_threads(16 * 16 * 32) == 1  # too little work to share
    assert choose_threads(1024 * 1024 * 1024, asked=3) == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert choose_threads(1024 * 1024 * 1024) == 2
    monkeypatch.setattr("os.getloadavg", lambda: (80.0, 0.0, 0.0), raising=False)
    assert choose_threads(1024 * 1024 * 1024) == 1


def test_only_the_first_process_writes(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zol.common.parallel.is_main", lambda: False)
    code, said = run(capsys, *words(data, tmp_path / "run"))
    assert code == 0
    assert said == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs the extra tensorboard")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_the_same_numbers(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ("10", "20"):
        more = ("--tensorboard", "--episodes", "1", "--anneal", "0", "--steps", steps)
        assert run(capsys, *words(data, tmp_path / "run", *more))[0] == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    for tag, name in {
        "training/loss": "loss",
        "health/rank": "health/rank",
        "return/mean": "return/mean",
    }.items():
        shown = {event.step: event.value for event in events.Scalars(tag)}
        logged = {line["step"]: line[name] for line in read_metrics(tmp_path / "run") if name in line}
        assert shown == pytest.approx(logged)


def test_tensorboard_is_an_extra(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, said = run(capsys, *words(data, tmp_path / "run", "--tensorboard", "--episodes", "0"))
    assert code == 2
    assert "needs tensorboard, which is not installed: pip install -e '.[tensorboard]'" in said
