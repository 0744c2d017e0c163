"""``zol adapt --reward``, typed or as FILE.py:NAME: rewards that nobody foresaw, with and without a world."""

import json
from pathlib import Path

import numpy as np
import pytest

from zol.adapt import METHODS
from zol.cli import main

REWARDS = '''
"""Rewards of a user."""
import torch
from zol.tasks import Task

def inner(s):
    """be near the hole."""
    return (s["radius"] < 0.5).float()

edge = Task("some name", lambda s: (s["radius"] > 0.8).float())

def right(s):
    return (s["obs"][..., 0] > 0).float()

def square(s):
    return s["radius"]

def misspelt(s):
    return s["radios"]

def broken(s):
    return s["radius"] + missing

def number(s):
    return 1.0

def endless(s):
    return s["radius"].log() / 0

def wide(s):
    return s["position"]
'''
SMALL = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0 --dynamics-steps 20"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A donut model, a model of nameless arrays, and a file of rewards."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "rewards.py").write_text(REWARDS)
    main(["explore", "donut", "--steps", "1500", "--how", "random", "--out", str(folder / "donut")])
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-1, 1, (1500, 3)), rng.uniform(-1, 1, (1500, 2))
    done = np.arange(1500) % 50 == 49
    np.savez(folder / "robot.npz", obs=obs, action=action, next_obs=obs * 0.9, truncated=done)
    main(["data", "import", str(folder / "robot.npz"), "--out", str(folder / "robot")])
    for data in ("donut", "robot"):
        main(
            [
                "train",
                "fb",
                "--data",
                str(folder / data),
                "--out",
                str(folder / f"{data}-run"),
                *SMALL.split(),
            ]
        )
    return folder


def adapt(
    capsys: pytest.CaptureFixture[str], folder: Path, run: str, *words: str, reward: str | None
) -> tuple[int, str, str]:
    own = ["--reward", f"{folder / 'rewards.py'}:{reward}"] if reward else []
    capsys.readouterr()
    try:
        main(["adapt", str(folder / run), *own, *words])
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("method", ["fb", "zol", "rehearse"])
@pytest.mark.parametrize("reward", ["inner", "edge"])
def test_a_latent_for_my_reward_and_what_it_earns(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, method: str, reward: str
) -> None:
    few = {"fb": [], "zol": ["--steps", "2"], "rehearse": ["--horizon", "5", "--rounds", "1"]}[method]
    words = ["--method", method, *few, "--episodes", "2", "--out", str(tmp_path)]
    code, out, _ = adapt(capsys, folder, "donut-run", *words, reward=reward)
    assert code == 0
    assert reward in out
    assert "return of 2" in " ".join(out.split())
    assert "random" in out
    assert [path.name for path in tmp_path.glob("*.json")] == [f"{reward}.json"]
    latent = json.loads((tmp_path / f"{reward}.json").read_text())
    assert (latent["task"], latent["method"]) == (reward, method)


def test_two_rewards_of_one_name_are_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.py"
    other.write_text('def inner(s): return s["radius"]')
    own = [f"{file}:inner" for file in (folder / "rewards.py", other)]
    code, _, err = adapt(capsys, folder, "donut-run", "--reward", *own, reward=None)
    assert code == 2
    assert "rewards need names of their own" in err


def test_beside_tasks_of_the_world(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    words = ["--task", "cross", "--method", "fb", "--out", str(tmp_path)]
    assert adapt(capsys, folder, "donut-run", *words, reward="inner")[0] == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["cross.json", "inner.json"]


@pytest.mark.parametrize("reward", ["backwards", "crouch", "quietly"])
def test_the_examples(capsys: pytest.CaptureFixture[str], reward: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "rewards.py"
    main(["adapt", "walker", "--method", "fb", "--reward", f"{example}:{reward}"])
    assert reward in capsys.readouterr().out


@pytest.mark.parametrize("method", ["fb", "zol", "auto"])
def test_a_model_of_nameless_arrays(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, method: str
) -> None:
    few = ["--steps", "2"] if method == "zol" else []
    words = ["--method", method, *few, "--out", str(tmp_path)]
    code, out, _ = adapt(capsys, folder, "robot-run", *words, reward="right")
    assert code == 0
    assert "right" in out
    latent = json.loads((tmp_path / "right.json").read_text())
    assert latent["method"] == ("rehearse" if method == "auto" else method)  # it has a learned world, too


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_registry_has_its_settings_as_options(
    capsys: pytest.CaptureFixture[str], folder: Path, method: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["adapt", str(folder / "donut-run"), "--method", method, "--help"])
    assert stop.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    settings = METHODS[method].settings
    inner = settings.as_far_as if method == "perturb" else settings
    nested = {"rehearsal", "critic"} if method == "agreed" else set()  # the first one's fields are options
    for name in set(type(inner).model_fields) - nested:
        assert f"--{name.replace('_', '-')} " in told.replace(",", " ")


def test_a_method_that_acts_in_the_environment(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    budget = ["--environment-steps", "40", "--horizon", "2", "--samples", "4"]
    words = ["--task", "cross", "--method", "lola", *budget]
    code, out, _ = adapt(capsys, folder, "donut-run", *words, reward=None)
    assert code == 0
    assert "env. steps" in " ".join(out.split())
    code, _, err = adapt(capsys, folder, "robot-run", "--method", "lola", reward="right")
    assert code == 2
    assert "lola acts in the environment" in err


def test_settings_of_another_method_are_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, _, err = adapt(capsys, folder, "donut-run", "--method", "fb", "--horizon", "3", reward="inner")
    assert code == 2
    assert "--horizon" in err
    code, _, err = adapt(capsys, folder, "donut-run", "--method", "rehears", reward="inner")
    assert code == 2
    assert "did you mean 'rehearse'" in err


@pytest.mark.parametrize(
    ("run", "reward", "words", "expected"),
    [
        ("donut-run", "iner", (), "no reward in {file} called 'iner'; did you mean 'inner'?"),
        ("donut-run", "misspelt", (), "no observation field called 'radios'; did you mean 'radius'?"),
        ("donut-run", "broken", (), "of {file} failed in line 22: NameError: name 'missing' is not defined"),
        ("donut-run", "number", (), "of {file} gave a float: a reward is a tensor with one number per state"),
        ("donut-run", "endless", (), "task 'endless' gives NaN or infinity for"),
        ("donut-run", "wide", (), "task 'wide' returned shape"),
        ("donut-run", "square", (), "donut has a task 'square' of its own: give your reward another name"),
        ("robot-run", None, (), "does not name its world, so it has no named tasks: bring a reward"),
        ("robot-run", "right", ("--task", "cross"), "does not name its world, so it has no named tasks"),
        ("robot-run", "right", ("--episodes", "2"), "so nothing can be tested or filmed: --episodes 0"),
        ("donut-run", None, ("--reward", "none.py:inner"), "none.py does not exist"),
        ("donut-run", None, ("--reward", "inner"), "'inner' names no reward: expected FILE.py:NAME"),
    ],
)
def test_mistakes_are_one_sentence(
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    run: str,
    reward: str | None,
    words: tuple[str, ...],
    expected: str,
) -> None:
    code, _, err = adapt(capsys, folder, run, "--method", "fb", *words, reward=reward)
    assert code == 2
    assert expected.format(file=folder / "rewards.py") in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("def f(s) return 1", "SyntaxError"), ("import no_such_thing", "in line 1: ModuleNotFoundError")],
)
def test_a_file_that_does_not_run(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "bad.py").write_text(text)
    code, _, err = adapt(capsys, folder, "donut-run", "--reward", f"{tmp_path / 'bad.py'}:f", reward=None)
    assert code == 2
    assert "cannot be run" in err
    assert expected in err


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1.2 * (radius > 0.8) - 0.1 * norm(action)", "1.2 x (radius gt 0.8) - 0.1 x norm(action)"),
        ("near = radius < 0.5", "near"),
        ("-radius", "-radius"),
        ("cross/2", "cross over 2"),
    ],
)
def test_a_reward_typed_on_the_command_line(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, text: str, name: str
) -> None:
    words = ["--reward", text, "--method", "fb", "--episodes", "1", "--out", str(tmp_path)]
    code, out, err = adapt(capsys, folder, "donut-run", *words, reward=None)
    assert code == 0, err
    assert "random" in out  # what it earned stands beside random actions
    assert [path.stem for path in tmp_path.glob("*.json")] == [name]


def test_a_typed_reward_over_nameless_columns(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert adapt(capsys, folder, "robot-run", "--method", "fb", "--reward", "obs[0] > 0", reward=None)[0] == 0


def test_a_mistake_in_a_typed_reward_is_pointed_at(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, _, err = adapt(capsys, folder, "donut-run", "--reward", "1 - (raduis > 0.8)", reward=None)
    assert code == 2
    assert "no field called 'raduis'; did you mean 'radius'?" in err
    assert err.rstrip().endswith("    1 - (raduis > 0.8)\n         ^^^^^^")
