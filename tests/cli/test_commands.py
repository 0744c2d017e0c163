"""Commands as a user types them: help that teaches, errors in one line, files where they were promised."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zol.cli import commands, main
from zol.report import Scores

Command = Callable[..., tuple[int, str, str]]


def test_overview_lists_every_command(zol_command: Command) -> None:
    code, out, _ = zol_command()
    assert code == 0
    for name in commands():
        assert name in out


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help(zol_command: Command, name: str) -> None:
    code, out, _ = zol_command(*name.split(), "--help")
    assert code == 0
    assert "usage" in out.lower()


def test_near_misses_are_suggested(zol_command: Command) -> None:
    code, _, err = zol_command("demmo")
    assert code == 2
    assert err.startswith("zol: no command called 'demmo'; did you mean 'demo'?")
    assert "Traceback" not in err


def test_version(zol_command: Command) -> None:
    assert zol_command("--version")[1].startswith("zol 0.")


@pytest.mark.parametrize("words", ["worlds show walker", "adapt --help"])
def test_a_reader_that_has_seen_enough_is_no_error(words: str) -> None:
    """zol … | head"""
    zol = subprocess.Popen(
        [sys.executable, "-m", "zol", *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert zol.stdout is not None
    assert zol.stderr is not None
    zol.stdout.close()
    assert zol.stderr.read() == b""
    zol.stderr.close()
    assert zol.wait() == 1


def test_doctor_reports_and_finds_nothing_wrong_here(zol_command: Command) -> None:
    code, out, _ = zol_command("doctor")
    assert code == 0
    for word in ("torch", "mujoco", "rendering", "threads", "device"):
        assert word in out


def test_import_is_light() -> None:
    """``import zol`` brings neither plotting nor simulators nor the command line with it."""
    code = "import sys, zol; print([m for m in ('matplotlib', 'mujoco', 'tyro', 'rich') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_public_names_all_resolve() -> None:
    import zol

    assert len(zol.__all__) <= 25
    for name in zol.__all__:
        assert getattr(zol, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = zol.nonsense


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo small enough for a test: the code path of the real one, not its numbers."""
    out = tmp_path_factory.mktemp("demo")
    small = "--steps 60 --hidden 16 --transitions 5000 --episodes 6 --z-dim 8 --batch-size 32"
    main(["demo", "--out", str(out), *small.split(), "--world-steps", "40", "--no-film"])
    return out


def test_demo_writes_what_it_promises(demo: Path) -> None:
    names = {path.name for path in demo.iterdir()}
    assert names >= {
        "scores.npz", "scores.json", "index.html", "table.md", "timing.json", "latents", "model",
        "reconstruction.png", "occupancy.png",
    }  # fmt: skip
    scores = Scores.load(demo / "scores")
    assert scores.tasks == ("square", "two_circles", "cross", "outer_ring", "far_disc")
    assert {"fb", "ridge", "zol", "perturb", "rehearse", "perturb-far"} <= set(scores.methods)
    assert scores.values["zol"].shape == (1, 5, 6)
    assert {"command", "commit", "cpu", "torch", "settings"} <= set(scores.facts)


def test_demo_page_is_self_contained(demo: Path) -> None:
    page = (demo / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert page.count("data:image/webp;base64,") == 1  # the paths, moving
    assert page.index('class="verdict"') < page.index("<img") < page.index("<table")
    assert "<script" not in page
    assert "http://" not in page
    assert "start states only" in page  # the caveat stands beside the numbers


def test_demo_control_moves_as_far_as_the_default(demo: Path) -> None:
    z = {
        name: json.loads((demo / "latents" / f"{name}-square.json").read_text())
        for name in ("fb", "rehearse", "perturb-far")
    }

    def distance(name: str) -> float:
        pairs = zip(z["fb"]["z"], z[name]["z"], strict=True)
        return sum((a - b) ** 2 for a, b in pairs) ** 0.5

    assert distance("perturb-far") == pytest.approx(distance("rehearse"), rel=1e-3)


def test_demo_checkpoint_loads_and_its_latents_fit(demo: Path) -> None:
    import zol

    loaded = zol.load(demo / "model")
    latent = zol.Latent.load(demo / "latents" / "zol-cross.json")
    result = zol.evaluate(
        zol.worlds.make("donut"),
        loaded.model,
        [latent],
        episodes=3,
        generator=__import__("torch").Generator(),
    )
    assert result.returns.shape == (1, 3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Explore, then train: the path of a new user, small."""
    folder = tmp_path_factory.mktemp("path")
    main(["explore", "donut", "--steps", "1500", "--how", "random", "--out", str(folder / "data")])
    small = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --log-every 10 --episodes 2 --dynamics-steps 20"
    main(["train", "fb", "--data", str(folder / "data"), "--out", str(folder / "run"), *small.split()])
    return folder


def test_training_reports_returns_and_keeps_its_command(trained: Path) -> None:
    last = json.loads((trained / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 20
    assert set(last) >= {"loss", "steps_per_second", "return/square", "return/far_disc"}
    facts = json.loads((trained / "run" / "config.json").read_text())
    assert facts["world"] == "donut"
    assert facts["network"]["discount"] == 0.97  # the world's own


@pytest.mark.parametrize("method", ["zol", "fb", "ridge", "weighted"])
def test_a_checkpoint_adapts_on_its_own(
    trained: Path, zol_command: Command, tmp_path: Path, method: str
) -> None:
    words = ["adapt", str(trained / "run"), "--task", "cross", "--method", method]
    words += ["--steps", "3"] if method == "zol" else []
    code, out, _ = zol_command(*words, "--episodes", "2", "--out", str(tmp_path / "z"))
    assert code == 0
    assert "cross" in out
    assert "ESS" in out
    latent = json.loads((tmp_path / "z" / "cross.json").read_text())
    assert (latent["method"], latent["task"]) == (method, "cross")


def test_tuning_takes_the_data_that_are_brought(trained: Path, zol_command: Command) -> None:
    words = ["adapt", str(trained / "run"), "--task", "cross", "--method", "tune", "--steps", "3"]
    code, out, _ = zol_command(*words, "--data", str(trained / "data"), "--episodes", "2")
    assert code == 0
    assert "tune on donut" in out
    assert "wants 200,000" not in out
    code, out, _ = zol_command(*words)
    assert code == 0
    assert "tune learns from transitions and wants 200,000" in out


@pytest.mark.parametrize(
    "method",
    ["tune", "supported", "guided", "weighted-bc", "subgoals", "waypoints", "switches", "gpi", "towards"],
)
@pytest.mark.parametrize("option", ["--out", "--sampled"])
def test_what_is_more_than_a_latent_is_refused_before_any_search(
    trained: Path,
    zol_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    option: str,
) -> None:
    monkeypatch.setattr("zol.session.agent.solve", lambda *_: pytest.fail("a search was begun"))
    words = [option] if option == "--sampled" else [option, str(tmp_path / "z")]
    code, _, said = zol_command("adapt", str(trained / "run"), "--task", "cross", "--method", method, *words)
    assert code == 2
    assert f"{option}: what {method} does is more than one latent" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "z").exists()


def test_rehearsal_is_the_default_where_there_is_a_learned_world(
    trained: Path, zol_command: Command, tmp_path: Path
) -> None:
    code, out, _ = zol_command("adapt", str(trained / "run"), "--task", "cross", "--out", str(tmp_path / "z"))
    assert code == 0
    assert "corr." in out
    latent = json.loads((tmp_path / "z" / "cross.json").read_text())
    assert latent["method"] == "rehearse"


def test_adapting_to_an_unknown_task_is_one_sentence(trained: Path, zol_command: Command) -> None:
    code, _, err = zol_command("adapt", str(trained / "run"), "--task", "croos")
    assert code == 2
    assert "did you mean 'cross'" in err


def test_tasks_without_any_reward_in_the_sample_are_left_out_aloud(
    trained: Path, zol_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zol.worlds.donut import TASKS

    monkeypatch.setitem(TASKS, "cross", TASKS["square"].where(lambda s: s["radius"] > 9).named("cross"))
    code, out, _ = zol_command("adapt", str(trained / "run"), "--method", "fb")
    assert code == 0
    assert "left out: cross" in out.replace("\n", " ")
    code, _, err = zol_command("adapt", str(trained / "run"), "--method", "fb", "--task", "cross")
    assert code == 2
    assert "nothing is left" in err


def test_training_on_nothing_is_one_sentence(zol_command: Command, tmp_path: Path) -> None:
    code, _, err = zol_command(
        "train", "fb", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "run")
    )
    assert code == 2
    assert err.startswith("zol: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (PermissionError(13, "Permission denied", "/somewhere/out"), "/somewhere/out: permission denied"),
        (MemoryError(), "there is not enough memory"),
        (sqlite3.DatabaseError("database disk image is malformed"), "image is malformed"),
    ],
    ids=["disk", "memory", "store"],
)
def test_what_the_system_refuses_is_one_sentence(
    error: Exception, shown: str, zol_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr("zol.cli.doctor.doctor", refuse)
    code, _, err = zol_command("doctor")
    assert code == 3
    assert err.startswith("zol: zol doctor stopped: ")
    assert shown in err
    assert err.count("\n") == 1
    assert "Traceback" in zol_command("doctor", "--debug")[2]
