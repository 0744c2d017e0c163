"""What several contract tests share: a process that reads damaged files."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fuzzing import Worker

if sys.platform == "win32":  # which has no limits for processes, and none to fork from
    collect_ignore = ["test_fuzz.py", "test_attacks.py"]


@pytest.fixture(scope="session")
def worker() -> "Iterator[Worker]":
    from fuzzing import Worker

    process = Worker()
    yield process
    process.close()
