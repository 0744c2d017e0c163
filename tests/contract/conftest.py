"""What contract tests share: a process that reads damaged files; which tests need a system that forks."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fuzzing import Worker

collect_ignore: list[str] = []
if sys.platform == "win32":  # which has no limits for processes, and none to fork from
    own = Path(__file__).parent.glob("test_*.py")
    collect_ignore = [p.name for p in own if "from killing import" in p.read_text(encoding="utf-8")]
    collect_ignore += ["test_command_kills.py", "test_fuzz.py", "test_attacks.py"]


@pytest.fixture(scope="session")
def worker() -> "Iterator[Worker]":
    from fuzzing import Worker

    process = Worker()
    yield process
    process.close()
