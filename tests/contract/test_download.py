"""The downloader against a server on this machine that stops, lies and lacks ranges."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from zol.common.errors import DataError
from zol.data.sources.download import download

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Serves CONTENT; ``stop_after`` lists how many bytes each answer sends before it breaks off."""

    def __init__(self) -> None:
        self.stop_after: list[int] = []
        self.ranges = True
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.zip"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if "missing" in request.path:
            request.send_error(404)
            return
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if begin >= len(CONTENT):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            request.end_headers()
            return
        body = CONTENT[begin:]
        request.send_response(206 if wanted and self.ranges else 200)
        request.send_header("Content-Length", str(len(body)))
        if wanted and self.ranges:
            request.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        request.end_headers()
        request.wfile.write(body[: self.stop_after.pop(0)] if self.stop_after else body)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def test_interrupted_twice_goes_on_where_it_stopped(tmp_path: Path, server: Server):
    server.stop_after = [100_000, 50_000]
    path = download([server.url], tmp_path / "file.zip", sha256=SHA, pause=0)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert [p.name for p in tmp_path.iterdir()] == ["file.zip"]
    download([server.url], tmp_path / "file.zip", sha256=SHA)
    assert len(server.asked) == 3  # already there


def test_a_later_run_goes_on(tmp_path: Path, server: Server):
    server.stop_after = [100_000]
    with pytest.raises(DataError, match=r"100000 bytes are kept in file\.zip\.part"):
        download([server.url], tmp_path / "file.zip", attempts=1, pause=0)
    assert not (tmp_path / "file.zip").exists()
    assert download([server.url], tmp_path / "file.zip", sha256=SHA, pause=0).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_without_ranges_starts_again(tmp_path: Path, server: Server):
    server.ranges, server.stop_after = False, [100_000]
    assert download([server.url], tmp_path / "file.zip", sha256=SHA, pause=0).read_bytes() == CONTENT


def test_a_whole_part_only_needs_its_name(tmp_path: Path, server: Server):
    (tmp_path / "file.zip.part").write_bytes(CONTENT)
    assert download([server.url], tmp_path / "file.zip", sha256=SHA, pause=0).read_bytes() == CONTENT


def test_the_second_mirror_helps(tmp_path: Path, server: Server):
    missing = server.url.replace("file", "missing")
    assert download([missing, server.url], tmp_path / "f", sha256=SHA, pause=0).read_bytes() == CONTENT


def test_wrong_bytes_are_refused(tmp_path: Path, server: Server):
    with pytest.raises(DataError, match="expected 0000"):
        download([server.url], tmp_path / "file.zip", sha256="0" * 64, pause=0)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_one_sentence(tmp_path: Path, server: Server):
    with pytest.raises(DataError, match=r"could not download f .*404|Not Found.*--from-dir") as caught:
        download([server.url.replace("file", "missing")], tmp_path / "f", attempts=2, pause=0)
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="not an http or https address"):
        download(["file:///etc/hostname"], tmp_path / "f")
