"""Shells complete what there is: commands, their options, and names of methods, worlds and models."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from zol.cli import commands

Command = Callable[..., tuple[int, str, str]]
ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _zol; echo "${COMPREPLY[*]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from zol.cli.completion import bash

    path = tmp_path_factory.mktemp("completion") / "zol.bash"
    path.write_text(bash())
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(script: Path) -> None:
    for words, offered in {
        ("tra",): {"train"},
        ("train", ""): {"fb", "laplacian", "dynamics", "show"},
        ("train", "fb", "--tensor"): {"--tensorboard"},
        ("train", "fb", "--no-tensor"): {"--no-tensorboard"},
        ("adapt", "wal"): {"walker"},
        ("adapt", "walker", "--method", "reh"): {"rehearse"},
        ("worlds", "show", "four"): {"four_rooms"},
        ("bench", "exorl", "--epi"): {"--episodes"},
        ("doctor", "--h"): {"--help"},
    }.items():
        asked = ["bash", "-c", ASK, "bash", str(script), "zol", *words]
        told = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert set(told.stdout.split()) >= offered, words
        assert all(word.startswith(words[-1]) for word in told.stdout.split())


def test_the_other_shells_know_every_command(zol_command: Command) -> None:
    code, fish, _ = zol_command("completion", "fish")
    assert code == 0
    for name in commands():
        assert f"-a {name.split()[-1]}" in fish
    assert "-l method -r -a 'fb " in fish
    assert "bashcompinit" in zol_command("completion", "zsh")[1]
