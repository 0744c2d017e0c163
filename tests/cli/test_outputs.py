"""Where nothing can be written, every command says so in a sentence before any time is spent."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zol.bench.store import Key, Result, Store
from zol.data import Dataset

Command = Callable[..., tuple[int, str, str]]
SMALL = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0 --dynamics-steps 0"

# command → (its words, {…} stand for files; what it must not have begun to do)
COMMANDS: dict[str, tuple[str, str]] = {
    "explore": ("explore donut --steps 100 --out {out}", "zol.collect.explore._Run"),
    "import": ("data import {npz} --out {out}", "zol.data.sources.arrays.import_arrays"),
    "subset": ("data subset {data} --episodes 2 --out {out}", "zol.data.writer.DatasetWriter"),
    "merge": ("data merge {data} {data} --out {out}", "zol.data.writer.DatasetWriter"),
    "resimulate": ("data resimulate {data} --out {out}", "zol.data.writer.DatasetWriter"),
    "train": (f"train fb --data {{data}} --out {{out}} {SMALL}", "zol.train.pretraining.fit"),
    "train dynamics": ("train dynamics --data {data} --out {out}", "zol.train.learned_world.fit"),
    "train show": ("train show {model} --out {out}/curve.png", "zol.cli.train_show.read_metrics"),
    "adapt": ("adapt {model} --task cross --out {out}", "zol.session.agent.solve"),
    "film": ("adapt {model} --task cross --video {out}", "zol.session.agent.solve"),
    "pack": ("zoo pack {model} --out {out}", "zol.checkpoint.save"),
    "bench": ("bench exorl {model} --store {out}/s.sqlite", "zol.bench.run.open_model"),
    "sweep": ("sweep {model} --store {out}/s.sqlite", "zol.bench.sweep.open_model"),
    "ranking": ("bench ranking {model} --out {out}", "zol.bench.ranking._judge_model"),
    "ratios": ("bench ratios {model} --out {out}", "zol.bench.ratios.judge_model"),
    "humenv": ("bench humenv --model {model} --buffer {npz} --out {out}/scores", "zol.bench.humenv.make"),
    "report": ("report {store} --out {out}", "zol.bench.store.Store.results"),
    "export": ("export {model} --out {out}", "zol.session.load"),
    "demo": ("demo --out {out}", "zol.demo.pipeline.collect"),
    "gallery": ("gallery --out {out}/b.webp", "zol.demo.gallery.load"),
}
PLACES = ["an existing file", "below a file", "a long name"]
if Path("/proc/self").exists():
    PLACES.append("where the system takes no files")


@pytest.fixture
def given(tiny_checkpoint: Path, tmp_path: Path) -> dict[str, Path]:
    """What the commands read."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    zeros = np.zeros(3)
    np.savez(inputs / "a.npz", observations=np.zeros((3, 2)), actions=np.zeros((3, 2)), terminals=zeros)
    Store(inputs / "s.sqlite").add([Result(Key("exorl", "walker", "run", "fb", "{}", "a", 0, 1), zeros)])
    data = tiny_checkpoint.parent / "data"
    return {"model": tiny_checkpoint, "data": data, "npz": inputs / "a.npz", "store": inputs / "s.sqlite"}


def forbid(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def begun(*_: object, **__: object) -> None:
        pytest.fail(f"{what} was called before the output was checked")

    monkeypatch.setattr(what, begun)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_cannot_be_written(
    name: str,
    place: str,
    given: dict[str, Path],
    tmp_path: Path,
    zol_command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    precious, free = tmp_path / "precious", tmp_path / "free"
    precious.write_text("mine")
    free.mkdir()
    out = {
        "an existing file": precious,
        "below a file": precious / "deep" / "out",
        "a long name": free / ("x" * 300),
        "where the system takes no files": Path("/proc/zol/out"),
    }[place]
    words, begun = COMMANDS[name]
    forbid(monkeypatch, begun)
    code, _, said = zol_command(*words.format(out=out, **given).split())
    assert code == 2
    assert said.startswith("zol: ")
    assert said.count("\n") == 1
    assert "cannot be written" in said or "can be opened" in said  # a folder, or a store
    assert precious.read_text() == "mine"
    assert list(free.iterdir()) == []


def test_a_folder_where_a_picture_is_to_be(
    tiny_checkpoint: Path, tmp_path: Path, zol_command: Command
) -> None:
    (tmp_path / "curve.png").mkdir()
    for name, what in (("curve.png", "it is a folder"), ("curve.pgn", "did you mean 'png'")):
        code, _, said = zol_command("train", "show", str(tiny_checkpoint), "--out", str(tmp_path / name))
        assert code == 2
        assert what in said


def test_a_reward_whose_name_is_too_long_for_a_file(
    tiny_checkpoint: Path, tmp_path: Path, zol_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r.py").write_text(f"def {'x' * 300}(s): return s['obs'][..., 0]\n")
    forbid(monkeypatch, "zol.session.agent.solve")
    words = ["adapt", str(tiny_checkpoint), "--reward", f"{tmp_path}/r.py:{'x' * 300}"]
    code, _, said = zol_command(*words, "--out", str(tmp_path / "out"))
    assert code == 2
    assert "more than 255" in said


@pytest.mark.parametrize(
    ("package", "words", "begun"),
    [
        ("imageio_ffmpeg", "adapt walker --task run --video {out}", "zol.session.agent.solve"),
        ("onnxruntime", "export {model} --out {out}", "zol.session.load"),
        (
            "tensorboard",
            f"train fb --data {{data}} --out {{out}} --tensorboard {SMALL}",
            "zol.train.pretraining.fit",
        ),
        (
            "wandb",
            f"train fb --data {{data}} --out {{out}} --wandb project {SMALL}",
            "zol.train.pretraining.fit",
        ),
        ("ray", "bench exorl {model} --store {out}/s --ray auto", "zol.bench.run.open_model"),
        ("ray", "sweep {model} --store {out}/s --ray auto", "zol.bench.sweep.open_model"),
        ("scipy.stats", "bench ranking {model} --out {out}", "zol.bench.ranking._judge_model"),
    ],
)
def test_an_extra_that_is_missing(
    package: str,
    words: str,
    begun: str,
    given: dict[str, Path],
    tmp_path: Path,
    zol_command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forbid(monkeypatch, begun)
    monkeypatch.setitem(sys.modules, package, None)
    code, _, said = zol_command(*words.format(out=tmp_path / "out", **given).split())
    assert code == 2
    assert "pip install -e" in said


def test_paths_that_look_like_markup_are_printed_as_they_are(
    given: dict[str, Path], tmp_path: Path, zol_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closing tag that nobody opened ended the program, after all the work was done."""
    monkeypatch.chdir(tmp_path)
    for words in (
        "explore donut --steps 300 --how random --out {out}/data",
        "data show {out}/data",
        "data subset {out}/data --episodes 1 --out {out}/part",
        "data import {npz} --out {out}/imported",
        f"train fb --data {{data}} --out {{out}}/run {SMALL}",
        "train dynamics --data {data} --out {out}/run --steps 2 --width 8 --members 2",
        "adapt {out}/run --task cross --out {out}/latents",
        "zoo pack {out}/run --out {out}/packed",
        "report {store} --out {out}/report",
        "export {out}/run --out {out}/robot",
    ):
        code, printed, said = zol_command(*words.format(out="[/red]:cat:", **given).split())
        assert (code, said) == (0, "")
        assert "[/red]:cat:" in printed, words


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere file names are text")
def test_a_name_that_is_no_text_is_printed_all_the_same(given: dict[str, Path], tmp_path: Path) -> None:
    """In its own process, whose output refuses what it cannot encode."""
    out = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    words = [sys.executable, "-m", "zol", "data", "import", str(given["npz"]), "--out", out]
    done = subprocess.run(
        words, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\udce9" in done.stdout.replace(b"\n", b"")
    command = Dataset.open(out).provenance["command"]
    assert "caf\\udce9" in command
    Store(tmp_path / "s.sqlite").add(
        [
            Result(
                Key("exorl", "walker", "run", "fb", "{}", "abc", 0, 1),
                np.zeros(1),
                facts={"command": command},
            )
        ]
    )
