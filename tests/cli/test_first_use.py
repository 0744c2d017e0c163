"""What somebody stumbled over when trying zol for the first time; each stays mended.

More of it is tested where it belongs: outputs that cannot be written in test_outputs.py, zoo names in
contract/test_session.py, verdicts of benchmarks in test_bench.py, pages and tables in exact/test_report.py,
films in contract/test_film.py, interrupts in contract/test_explore.py and contract/test_training.py.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zol
from zol.adapt import METHODS
from zol.bench.run import RunOptions
from zol.cli import commands, main
from zol.cli.data import share
from zol.common.errors import CheckpointError, DataError
from zol.fields import Layout, States
from zol.worlds.donut import Donut

Command = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
SMALL = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0 --dynamics-steps 0"


def one_line(text: str) -> str:
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


class TestInterrupts:
    def test_explore_says_what_is_saved_and_what_is_lost(
        self, zol_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = f"explore donut --steps 600 --how random --envs 3 --out {tmp_path / 'set'}".split()
        step, calls = Donut.step, 0

        def stopping(world: Donut, action: torch.Tensor) -> States:
            nonlocal calls
            calls += 1
            if calls == 111:
                raise KeyboardInterrupt
            return step(world, action)

        with monkeypatch.context() as patch:
            patch.setattr(Donut, "step", stopping)
            code, _, said = zol_command(*words)
        assert code == 130
        assert "300 steps in 3 episodes are saved" in said
        assert "30 steps of the unfinished round are lost" in said
        assert len(zol.Dataset.open(tmp_path / "set")) == 300
        assert zol_command(*words)[0] == 0
        assert len(zol.Dataset.open(tmp_path / "set")) == 600

    def test_other_commands_promise_nothing(
        self, zol_command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("zol.cli.doctor.doctor", interrupted)
        code, _, said = zol_command("doctor")
        assert code == 130
        assert "is lost" in said


class TestPython:
    def test_every_public_name_is_listed(self) -> None:
        assert set(zol.__all__) <= set(dir(zol))

    def test_representations_are_sentences_and_not_walls(self, tiny_checkpoint: Path) -> None:
        agent = zol.load(tiny_checkpoint)
        skills = agent.adapt(["cross", "square"], "fb")
        data = zol.Dataset.open(tiny_checkpoint.parent / "data")
        for thing, word in (
            (data, "1,500 transitions of donut"),
            (skills.found.evidence, "rewards of 2 tasks"),
            (skills.found, "[C, T, d]"),
            (agent.checkpoint, "latents of 8"),
            (skills[0].latent, "'cross' by fb"),
        ):
            assert word in repr(thing)
            assert len(repr(thing)) < 400

    def test_what_a_model_cannot_take_is_named(self, tiny_checkpoint: Path) -> None:
        agent = zol.load(tiny_checkpoint)
        skill, obs = agent.adapt("cross", "fb"), agent.checkpoint.prompt["obs"][:3]
        with pytest.raises(DataError, match=r"got Latent: pass latent\.z"):
            agent.model.act(obs, skill.latent)
        with pytest.raises(DataError, match=r"skill\.act"):
            agent.model.act(obs.numpy(), skill.latent.z)
        action = agent.model.act(obs, skill.latent.z)
        assert not action.requires_grad
        np.testing.assert_allclose(skill.act(obs.numpy()), action.numpy(), atol=1e-6)

    def test_a_latent_and_a_prompt_are_vectors(self, tiny_checkpoint: Path) -> None:
        agent = zol.load(tiny_checkpoint)
        skill = agent.adapt("cross", "fb")
        assert skill.latent.z.shape == agent.problem("cross").start[0].shape == (8,)

    def test_one_task_is_as_good_as_a_list_and_a_function_is_answered(self, tiny_checkpoint: Path) -> None:
        data, world = zol.Dataset.open(tiny_checkpoint.parent / "data"), Donut()
        seeded = torch.Generator().manual_seed(0)
        function: Any = lambda s: s["radius"]  # noqa: E731
        names: Any = ["cross"]
        one = zol.Evidence.gather(data, world.tasks["cross"], world.layout, samples=50, generator=seeded)
        assert one.tasks == ("cross",)
        with pytest.raises(DataError, match="a task was expected"):
            zol.Evidence.gather(data, function, world.layout, generator=seeded)
        with pytest.raises(DataError, match="is a str, a task was expected"):
            zol.Evidence.gather(data, names, world.layout, generator=seeded)

    def test_a_learned_world_needs_no_layout(self, tiny_checkpoint: Path) -> None:
        from zol.train.learned_world import WorldConfig, learn_world

        data = zol.Dataset.open(tiny_checkpoint.parent / "data")
        learned = learn_world(data, None, WorldConfig(steps=2, width=8, members=2))
        assert learned.dynamics.obs_dim == 2

    def test_a_reward_for_one_shape_only_is_told_the_other_way_to_write_it(self) -> None:
        task = zol.Task("first", lambda s: s["obs"][:, 0])
        assert task(States(torch.ones(4, 2), Layout.plain(2))).shape == (4,)
        with pytest.raises(DataError, match=re.escape("[..., 0]")):
            task(States(torch.ones(3, 4, 2), Layout.plain(2)))


class TestZooNames:
    def test_train_show(self, zol_command: Command) -> None:
        code, out, _ = zol_command("train", "show", "walker")
        assert code == 0
        assert "random" in out
        assert "spin" in out
        assert "residual" in out

    def test_worlds_are_listed_as_they_are_installed(self, zol_command: Command) -> None:
        _, out, _ = zol_command("worlds", "list")
        assert ".[dmc]" in out
        assert "\\" not in out
        assert "states[name]" in zol_command("worlds", "show", "donut")[1]


class TestWhatGitTracksStaysAsItIs:
    ignored = tuple(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines())

    def test_by_default(self) -> None:
        from inspect import signature

        from zol.bench.ranking import ranking
        from zol.bench.sweep import sweep

        defaults = [RunOptions().store, signature(sweep).parameters["store"].default]
        defaults += [signature(ranking).parameters["out"].default]
        for path in defaults:
            assert path.parts[0] in self.ignored

    def test_by_the_commands_of_the_readme(self) -> None:
        places = re.findall(r"^zol .*?--(?:out|store|video) (\S+)", (ROOT / "README.md").read_text(), re.M)
        assert places
        for place in places:
            assert Path(place).parts[0] in self.ignored


class TestAdapt:
    def test_columns_are_explained_and_a_wrong_ratio_is_said(
        self, zol_command: Command, tiny_checkpoint: Path
    ) -> None:
        code, out, _ = zol_command("adapt", str(tiny_checkpoint), "--method", "fb", "--episodes", "2")
        assert code == 0
        assert "estimate: mean reward per step, offline" in out
        assert "an estimate times 100 compares with a return" in one_line(out)
        for title in ("ESS: ", "negative: ", "mean ratio: ", "moved: "):
            assert f"\n{title}" in out
        assert "cannot be trusted" in out  # after 20 steps the mean ratio is nowhere near 1
        assert max(map(len, out.splitlines())) <= 80
        assert "two_circles" in out

    def test_every_diagnostic_that_a_method_shows_has_a_legend(self) -> None:
        from zol.cli.adapt import COLUMNS

        assert all(meaning for _, meaning in COLUMNS.values())

    def test_a_constant_reward_is_said(
        self, zol_command: Command, tiny_checkpoint: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "r.py").write_text("def flat(s): return 0 * s['radius'] + 2\n")
        reward = f"{tmp_path}/r.py:flat"
        code, out, _ = zol_command("adapt", str(tiny_checkpoint), "--method", "fb", "--reward", reward)
        assert code == 0
        assert "'flat' is the same in every sampled state" in out

    def test_an_option_of_another_method_is_refused(
        self, zol_command: Command, tiny_checkpoint: Path
    ) -> None:
        code, out, said = zol_command("adapt", str(tiny_checkpoint), "--method", "rehearse", "--steps", "5")
        assert code == 2
        assert "--steps" in out + said

    def test_its_own_are_on_the_command_line(self, zol_command: Command, tiny_checkpoint: Path) -> None:
        out = zol_command("adapt", str(tiny_checkpoint), "--method", "rehearse", "--help")[1]
        for name in type(METHODS["rehearse"].settings).model_fields:
            assert f"--{name.replace('_', '-')}" in out
        assert "STR" not in out

    @pytest.mark.parametrize("command", [name for name in commands() if name != "adapt"])
    def test_no_option_is_explained_by_its_type(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as end:
            main([*command.split(), "--help"])
        assert end.value.code == 0
        assert not re.search(r"\bSTR\b", capsys.readouterr().out)

    def test_an_unfinished_run(self, tmp_path: Path) -> None:
        (tmp_path / "run.json").write_text("{}")
        with pytest.raises(CheckpointError, match="a training run that is not finished"):
            zol.load(tmp_path)


def test_export_without_latents_says_so(zol_command: Command, tiny_checkpoint: Path, tmp_path: Path) -> None:
    _, out, _ = zol_command("export", str(tiny_checkpoint), "--out", str(tmp_path / "robot"))
    assert "no latents inside" in out


def test_the_readme_exports_a_policy_with_its_latent() -> None:
    readme = (ROOT / "README.md").read_text()
    (written,) = re.findall(r"^zol adapt walker --task (\w+) .*--out (\S+)", readme, re.M)
    (taken,) = re.findall(r"^zol export walker .*--latents (\S+)", readme, re.M)
    assert taken == f"{written[1]}/{written[0]}.json"


def test_provenance_counts_threads() -> None:
    from zol.common.provenance import of_numbers

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert of_numbers()["cpu"].endswith(", 1 thread")
        torch.set_num_threads(2)
        assert of_numbers()["cpu"].endswith(", 2 threads")
    finally:
        torch.set_num_threads(before)


def test_train_help_shows_true_defaults_and_counts_threads(
    zol_command: Command, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    shown = one_line(zol_command("train", "fb", "--help")[1])
    assert re.search(r"--episodes INT .{0,200}\(default: 10\)", shown)
    words = f"train fb --data {tiny_checkpoint.parent / 'data'} --out {tmp_path / 'run'} {SMALL} --threads 1"
    assert "cpu with 1 thread\n" in zol_command(*words.split())[1]


@pytest.mark.parametrize(
    ("part", "shown"), [(1.0, "100 %"), (0.147, "15 %"), (0.024, "2.4 %"), (0.0, "0 %"), (1e-6, "< 0.01 %")]
)
def test_shares_are_never_in_powers_of_ten(part: float, shown: str) -> None:
    assert share(part) == shown
