"""``zol train fb``: presets and flags, curves, and mistakes that are told before any time is spent."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from zol.cli import main
from zol.cli.train import flags
from zol.collect.donut import collect
from zol.collect.online import OnlineConfig
from zol.collect.practice import PracticeConfig
from zol.common.config import Config
from zol.common.device import choose_threads
from zol.data import Dataset
from zol.models import MODELS
from zol.models.pretraining import Pretraining
from zol.train import TrainConfig, planning, presets
from zol.train.planning import plan
from zol.train.run_folder import read_metrics
from zol.worlds import make
from zol.worlds.base import World

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
    preset = presets.read(MODELS["fb"].presets)["cpu"]
    assert facts["training"]["anneal"] == preset["anneal"]
    assert facts["settings"]["learning_rate"] == preset["learning_rate"]
    assert facts["model"] == "fb"
    assert "| random actions |" in (tmp_path / "run" / "README.md").read_text()
    code, said = run(capsys, "train", "show", str(tmp_path / "run"), "--out", str(tmp_path / "curve.png"))
    assert code == 0
    for shown in ("mean returns", "random", "far_disc", "residual"):
        assert shown in said
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_data_are_opened_once_and_the_world_is_made_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"opened": 0, "made": 0}
    original_open, original_make = Dataset.open, make

    def opened(path: Path) -> Dataset:
        counts["opened"] += 1
        return original_open(path)

    def made(name: str) -> World:
        counts["made"] += 1
        return original_make(name)

    monkeypatch.setattr(Dataset, "open", opened)
    monkeypatch.setattr(planning, "make", made)
    more = ("--episodes", "1", "--dynamics-steps", "5")
    assert run(capsys, *words(data, tmp_path / "run", *more))[0] == 0
    assert counts == {"opened": 1, "made": 1}


def test_a_curve_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "train", "show", str(tmp_path))
    assert code == 2
    assert "has no metrics yet" in said


@pytest.fixture(params=MODELS)
def entry(request: pytest.FixtureRequest) -> Pretraining:
    return MODELS[request.param]


def test_every_setting_of_a_model_has_a_flag(entry: Pretraining) -> None:
    Settings = flags(entry.config)
    assert set(Settings.model_fields) == set(entry.config.model_fields) - {"obs_dim", "action_dim"}
    for name, field in Settings.model_fields.items():
        assert field.default == entry.config.model_fields[name].default


def test_presets_name_fields_that_exist_with_values_that_are_allowed(entry: Pretraining) -> None:
    Settings = flags(entry.config)
    known = set(TrainConfig.model_fields) | set(Settings.model_fields) | {"dynamics_steps"}
    acting: type[Config] = PracticeConfig if entry.online == "practice" else OnlineConfig
    known |= set(acting.model_fields) if entry.online else set()
    tables = presets.read(entry.presets)
    assert "cpu" in tables
    for preset, table in tables.items():
        for world in [*table.get("worlds", {}), *([] if table.get("listed_worlds_only") else [None])]:
            values = presets.settings(tables, preset, world)
            assert set(values) <= known
            TrainConfig(**{k: v for k, v in values.items() if k in TrainConfig.model_fields})
            Settings(**{k: v for k, v in values.items() if k in Settings.model_fields})
            if entry.online:
                acting(**{k: v for k, v in values.items() if k in acting.model_fields})


def test_published_presets_are_those_of_the_paper() -> None:
    tables = presets.read(MODELS["fb"].presets)
    control = {"walker", "cheetah", "quadruped", "point_mass_maze"}
    ogbench = {"antmaze-medium", "antmaze-large", "cube-single", "cube-double", "puzzle-3x3"}
    for name in ("fb", "hilp", "td_jepa"):
        worlds = presets.read(MODELS[name].presets)["paper"]["worlds"]
        assert set(worlds) == control | ogbench, name
        assert {worlds[world]["actor"] for world in ogbench} == {"flow"}, name
        assert [worlds[world]["bc"] for world in sorted(ogbench)] == [0.3, 0.3, 3.0, 3.0, 3.0], name
    assert presets.choose(tables, "auto", "walker", gpu=True) == "paper"
    assert presets.choose(tables, "auto", "walker", gpu=False) == "cpu"
    assert presets.choose(tables, "auto", "donut", gpu=True) == "cpu"


def test_a_misspelt_setting_is_corrected(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, *words(data, tmp_path / "run", "--orthonormalty", "3"))
    assert code == 2
    assert "--orthonormality" in said
    assert not (tmp_path / "run").exists()


def shown_default(capsys: pytest.CaptureFixture[str], flag: str, *words: str) -> str:
    """The default that ``zol train fb … --help`` shows for a flag."""
    code, said = run(capsys, "train", "fb", *words, "--help")
    assert code == 0
    return said.split(f"--{flag} ")[1].split("(default: ")[1].split(")")[0]


def test_help_shows_the_defaults_that_the_words_decide(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert shown_default(capsys, "steps") == "8000"
    assert shown_default(capsys, "steps", f"--data={data}") == "4000"
    assert shown_default(capsys, "actor-learning-rate", "--learning_rate", "0.25") == "0.25"


def test_presets_know_the_domain_and_flags_win(data: Path, tmp_path: Path) -> None:
    maze = claimed(data, tmp_path / "maze", "pointmass")
    walker = claimed(data, tmp_path / "walker", "walker")
    found = plan("fb", maze, preset="paper")
    assert (found.training.steps, found.training.batch_size) == (3_000_000, 1024)
    model = found.settings
    assert (model["hidden"], model["z_dim"], model["discount"]) == (1024, 100, 0.99)
    assert model["actor_learning_rate"] == 1e-6
    assert plan("fb", walker, preset="paper").settings["discount"] == 0.98
    assert plan("fb", walker).settings["discount"] == 0.98  # the world's own
    assert plan("fb", maze).settings["discount"] == 0.995  # the preset's, which the maze needs
    assert plan("fb", data).settings["discount"] == 0.97
    assert plan("fb").settings["hidden"] == presets.read(MODELS["fb"].presets)["cpu"]["hidden"]
    rates = plan("fb", maze, preset="paper", learning_rate=2e-3).settings
    assert {rates[name] for name in rates if name.endswith("learning_rate")} == {2e-3}


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
        ("--preset", "papr"): "did you mean 'paper'?",
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
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, said = run(capsys, *words(data, tmp_path / "run", "--tensorboard", "--episodes", "0"))
    assert code == 2
    assert "needs tensorboard, which is not installed: pip install -e '.[tensorboard]'" in said
