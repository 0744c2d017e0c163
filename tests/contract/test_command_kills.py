"""Commands that write, killed again and again and called once more: nothing is lost, doubled or left over."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashing import run

from zol.adapt.paper_settings import TASKS
from zol.bench.store import Key, Result, Store
from zol.cli import main
from zol.common.tensors import read_tensors
from zol.data import Dataset
from zol.train.run_folder import read_metrics

BENCH = "--methods fb ridge fb-centred --episodes 1 --steps 3 --workers 1"
TRAIN = "--steps 24 --save-every 5 --log-every 3 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0"


def command(folder: Path, words: str) -> None:
    """``zol WORDS``; a result that is there already, because the last kill came too late, is no error."""
    try:
        main(words.split())
    except SystemExit as stop:
        if stop.code and not (folder / "out").exists():
            raise


def bench(folder: Path, words: str) -> None:
    """``zol bench``, which goes on with the store that is there and never ends in an error."""
    main(words.split())


def files_of(path: Path) -> dict[str, Any]:
    """What a folder holds, without what says how long something took or where it was put."""
    found: dict[str, Any] = {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "run.toml"
    }
    if "contract.json" in found:
        found["contract.json"] = json.loads(found["contract.json"]) | {"latency_ms": None}
    return found


def run_of(path: Path) -> dict[str, Any]:
    """The weights and metrics of a training run and of its learned world."""
    found: dict[str, Any] = {
        str(file.relative_to(path)): {name: value.tolist() for name, value in read_tensors(file).items()}
        for file in path.rglob("*.safetensors")
    }
    for part in (path, path / "dynamics"):
        found[part.name] = [{**line, "steps_per_second": 0} for line in read_metrics(part)]
    return {name.replace(path.name, "run"): value for name, value in found.items()}


def set_of(path: Path) -> dict[str, Any]:
    data = Dataset.open(path)
    data.verify()
    return {"fingerprint": data.fingerprint(), "coverage": data.provenance["coverage"]}


def cells_of(path: Path) -> dict[str, Any]:
    rows = Store(path).results()
    assert len(rows) == len({row.key for row in rows})
    return {
        str(row.key): (row.returns.tolist(), row.estimate, row.diagnostics, row.chosen, row.environment_steps)
        for row in rows
    }


@dataclass(frozen=True)
class Case:
    """A command, what its result is, and whether every file that a kill leaves must be whole already."""

    words: str
    result: Callable[[Path], dict[str, Any]] = files_of
    whole: bool = True
    job: Callable[..., None] = command
    kills: int = 2  # in make test


CASES = {
    "import": Case("data import {inputs}/a.npz --out {out}"),
    "subset": Case("data subset {data} --episodes 12 --out {out}"),
    "merge": Case("data merge {data} {data} --out {out}"),
    "pack": Case("zoo pack {model} --out {out} --samples 50"),
    "report": Case("report {inputs}/s.sqlite --out {out}"),
    "export": Case("export {model} --out {out} --latents {inputs}/cross.json --fixed"),
    "adapt": Case("adapt {model} --method fb --out {out}"),
    "train": Case(f"train fb --data {{data}} --out {{out}} --dynamics-steps 8 {TRAIN}", run_of, False),
    "explore": Case("explore donut --steps 1200 --envs 4 --how random --out {out}", set_of, False),
    "bench": Case(f"bench exorl point_mass_maze --store {{out}} {BENCH}", cells_of, False, bench, 1),
}


@pytest.fixture(scope="module")
def given(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the commands read."""
    inputs, rng = tmp_path_factory.mktemp("inputs"), np.random.default_rng(0)
    obs, done = rng.uniform(-1, 1, (1200, 3)), np.arange(1200) % 20 == 19
    action = rng.uniform(-1, 1, (1200, 2))
    np.savez(inputs / "a.npz", obs=obs, action=action, next_obs=obs * 0.9, truncated=done)
    Store(inputs / "s.sqlite").add(
        Result(Key("exorl", "walker", task, method, "{}", "abc", 0, 1), rng.uniform(0, 1, 4), finished="2026")
        for task in TASKS["walker"]
        for method in ("fb", "zol")
    )
    main(["adapt", str(tiny_checkpoint), "--task", "cross", "--method", "fb", "--out", str(inputs)])
    return {"inputs": inputs, "model": tiny_checkpoint, "data": tiny_checkpoint.parent / "data"}


def kill_and_rerun(case: Case, given: dict[str, Path], tmp_path: Path, kills: int, seed: int) -> None:
    """As many kills as asked for, half of them at a change of a file; each time the command is run again."""
    calm, folder, choose = tmp_path / "calm", tmp_path / "killed", random.Random(seed)
    calm.mkdir()
    folder.mkdir()
    out = folder / "out"
    words = {place: case.words.format(out=place / "out", **given) for place in (calm, folder)}
    ended = run(case.job, calm, words[calm])
    expected = case.result(calm / "out")
    assert ended.changes > 0
    died = 0
    while died < kills:
        moment: dict[str, Any] = {"at_change": choose.randint(1, ended.changes)}
        if died % 2:
            moment = {"after": choose.uniform(0, ended.seconds)}
        if run(case.job, folder, words[folder], **moment).killed:
            died += 1
            if case.whole and out.exists():
                found = files_of(out)
                kept = {name: value for name, value in found.items() if not Path(name).name.startswith(".")}
                assert kept.items() <= expected.items()
        elif choose.random() < 0.5:  # done, and called again; or from the beginning
            shutil.rmtree(folder)
            folder.mkdir()
    run(case.job, folder, words[folder])
    assert case.result(out) == expected
    left = [p for p in folder.rglob("*") if p.name.endswith((".tmp", ".part", ".filling.lock"))]
    assert left == []


@pytest.mark.parametrize("name", CASES)
def test_killed_and_called_again(name: str, given: dict[str, Path], tmp_path: Path) -> None:
    kill_and_rerun(CASES[name], given, tmp_path, CASES[name].kills, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_a_dozen_times_and_called_again(name: str, given: dict[str, Path], tmp_path: Path) -> None:
    kill_and_rerun(CASES[name], given, tmp_path, 12, seed=1)
