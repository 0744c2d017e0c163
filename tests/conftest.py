"""What tests of several folders share: a small trained model."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the donut after a few steps: it can be opened, prompted and rolled out; it earns nothing."""
    from zol.cli import main

    folder = tmp_path_factory.mktemp("tiny")
    main(f"explore donut --steps 1500 --how random --out {folder / 'data'}".split())
    small = "--steps 20 --batch-size 32 --hidden 16 --z-dim 8 --episodes 0 --dynamics-steps 0"
    main(f"train fb --data {folder / 'data'} --out {folder / 'model'} {small}".split())
    return folder / "model"
