"""``--config run.toml``: every run writes the file that repeats it, and what is typed wins over a file."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from zol.cli import run_file
from zol.data import Dataset

Command = Callable[..., tuple[int, str, str]]
SMALL = "--steps 4 --batch-size 16 --hidden 16 --z-dim 4 --episodes 0 --dynamics-steps 0 --log-every 2"


def test_explore_writes_what_repeats_it(zol_command: Command, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert (
        zol_command(*f"explore donut --steps 200 --envs 2 --seed 3 --how random --out {first}".split())[0]
        == 0
    )
    found = tomllib.loads((first / "run.toml").read_text())
    assert found["command"] == "explore"
    assert (found["world"], found["steps"], found["envs"], found["seed"]) == ("donut", 200, 2, 3)
    assert found["batch-size"] > 0  # defaults of the explorer, too
    code, _, said = zol_command("explore", "--config", str(first / "run.toml"), "--out", str(second))
    assert (code, said) == (0, "")
    assert Dataset.open(second).fingerprint() == Dataset.open(first).fingerprint()
    typed = ["explore", "four_rooms", f"--config={first / 'run.toml'}", "--out", str(tmp_path / "third")]
    assert zol_command(*typed)[0] == 0
    assert Dataset.open(tmp_path / "third").provenance["world"] == "four_rooms"  # what is typed wins


def test_training_is_repeated_to_the_last_bit(
    zol_command: Command, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data, first, second = tiny_checkpoint.parent / "data", tmp_path / "first", tmp_path / "second"
    words = f"train fb --data {data} --out {first} {SMALL} --no-compiled --learning-rate 0.002"
    assert zol_command(*words.split())[0] == 0
    file = first / "run.toml"
    found = tomllib.loads(file.read_text())
    assert (found["learning-rate"], found["compiled"], found["preset"]) == (0.002, False, "auto")
    assert zol_command("train", "fb", "--config", str(file), "--out", str(second))[0] == 0
    one, other = (json.loads((run / "config.json").read_text()) for run in (first, second))
    assert one["weights"] == other["weights"]
    changed = tmp_path / "changed"
    assert zol_command("train", "fb", "--config", str(file), "--out", str(changed), "--seed", "1")[0] == 0
    assert json.loads((changed / "config.json").read_text())["weights"] != one["weights"]


def test_adapt_takes_its_method_from_the_file(
    zol_command: Command, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "z"
    words = f"adapt {tiny_checkpoint} --task cross square --method zol --steps 2 --clip 7 --out {out}"
    assert zol_command(*words.split())[0] == 0
    found = tomllib.loads((out / "run.toml").read_text())
    assert (found["task"], found["method"], found["clip"]) == (["cross", "square"], "zol", 7.0)
    again = tmp_path / "again"
    assert zol_command("adapt", "--config", str(out / "run.toml"), "--out", str(again))[0] == 0
    for task in ("cross", "square"):
        assert (again / f"{task}.json").read_text() == (out / f"{task}.json").read_text()


def test_a_benchmark_writes_it_beside_its_store() -> None:
    given = {"store": Path("runs/bench/store.sqlite"), "models": ("walker",), "ray": None, "methods": ()}
    assert run_file.place_of("bench exorl", given) == Path("runs/bench/exorl.toml")
    text = run_file.toml("bench exorl", given)
    assert tomllib.loads(text) == {
        "command": "bench exorl",
        "store": "runs/bench/store.sqlite",
        "models": ["walker"],
    }


def test_a_refused_command_leaves_nothing_behind(
    zol_command: Command, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    code, _, _ = zol_command(
        "adapt", str(tiny_checkpoint), "--task", "nonsense", "--out", str(tmp_path / "mine")
    )
    assert code == 2
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stepz = 3", "no option of zol explore called 'stepz'; did you mean 'steps'?"),
        ('command = "train fb"', "holds the options of zol train fb, not of zol explore"),
        ("steps = ", "is not TOML"),
        ("[rnd]\nhidden = 3", "expected a text, a number, true or a list"),
        (None, "does not exist"),
    ],
    ids=["unknown key", "other command", "no toml", "a section", "no file"],
)
def test_what_is_wrong_with_a_file_is_one_sentence(
    zol_command: Command, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "run.toml"
    if text is not None:
        file.write_text(text)
    code, _, err = zol_command("explore", "donut", "--config", str(file), "--out", str(tmp_path / "set"))
    assert code == 2
    assert err.startswith("zol: ")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "set").exists()


def test_values_that_shells_and_files_write_differently() -> None:
    given = {
        "data": Path('a "b" \\ ü'),
        "flag": True,
        "rate": 1e-4,
        "names": ("x", "y z"),
        "none": None,
        "no": (),
    }
    found = tomllib.loads(run_file.toml("train fb", given))
    expected = {
        "command": "train fb",
        "data": 'a "b" \\ ü',
        "flag": True,
        "rate": 1e-4,
        "names": ["x", "y z"],
    }
    assert found == expected


def test_help_tells_of_files(zol_command: Command) -> None:
    for words in ("explore", "train fb", "adapt", "bench exorl", "sweep"):
        assert "--config FILE.toml" in " ".join(zol_command(*words.split(), "--help")[1].split())
