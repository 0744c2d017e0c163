"""What several contract tests share: a process that reads damaged files."""

from collections.abc import Iterator

import pytest
from fuzzing import Worker


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    process = Worker()
    yield process
    process.close()
