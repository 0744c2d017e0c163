"""A Ray cluster that is not there is said at once, even if a file says that it is."""

import socket
import time
from pathlib import Path

import pytest

from zol.bench.ray_address import require_listener
from zol.common.errors import ZolError


@pytest.fixture
def closed_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_file_that_a_dead_cluster_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{closed_port}")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    begin = time.perf_counter()
    with pytest.raises(
        ZolError, match=r"no Ray cluster answers at 'auto'.*which .*ray_current_cluster names"
    ):
        require_listener("auto")
    assert time.perf_counter() - begin < 30


def test_an_address_at_which_nothing_listens(closed_port: int) -> None:
    with pytest.raises(ZolError, match=f"nothing listens at 127.0.0.1:{closed_port}: Connection refused"):
        require_listener(f"127.0.0.1:{closed_port}")


def test_what_listens_is_left_to_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        require_listener(f"127.0.0.1:{one.getsockname()[1]}")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # no file
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for address in ("auto", "local", "ray://head:10001"):
        require_listener(address)
