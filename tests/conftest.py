"""What many tests share: commands as a user types them, and a small trained model."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # one core for each of the processes that share the tests
    os.environ.setdefault("OMP_NUM_THREADS", "1")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def zol_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``zol WORDS…`` in this process; gives its exit code, output and errors."""
    from zol.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        try:
            main(list(words))
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the donut after a few steps: it can be opened, prompted and rolled out; it earns nothing."""
    from zol.cli import main

    folder = tmp_path_factory.mktemp("tiny")
    main(f"explore donut --steps 1500 --how random --out {folder / 'data'}".split())
    small = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0 --dynamics-steps 0"
    main(f"train fb --data {folder / 'data'} --out {folder / 'model'} {small}".split())
    return folder / "model"
