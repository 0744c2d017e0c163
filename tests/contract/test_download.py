"""The downloader against a server on this machine that stops, lies and lacks ranges."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zol.common.errors import DataError
from zol.data.sources import import_dataset
from zol.data.sources.download import download

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Serves CONTENT; ``stop_after`` lists how many bytes each answer sends before it breaks off."""

    def __init__(self) -> None:
        self.stop_after: list[int] = []
        self.ranges = True
        self.elsewhere = ""
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
        if "moved" in request.path:
            request.send_response(302)
            request.send_header("Location", self.elsewhere)
            request.end_headers()
            return
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
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    here = f"http://127.0.0.1:{server.http.server_port}/"  # the only address that need not be https
    monkeypatch.setattr("zol.data.sources.download.SECURE", ("https://", here))
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
        download([server.url], tmp_path / "file.zip", unverified=True, attempts=1, pause=0)
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
        download([server.url.replace("file", "missing")], tmp_path / "f", sha256=SHA, attempts=2, pause=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "http://example.org/f", "ftp://example.org/f", "f"])
def test_only_https_is_asked(tmp_path: Path, server: Server, url: str):
    with pytest.raises(DataError, match="is not an https address"):
        download([server.url, url], tmp_path / "f", sha256=SHA)
    assert server.asked == []
    server.elsewhere = url if "://" in url else "http://127.0.0.1/f"
    with pytest.raises(DataError, match=r"is not an https address|is not allowed"):  # Python refuses files
        download([server.url.replace("file", "moved")], tmp_path / "f", sha256=SHA, pause=0)
    assert list(tmp_path.iterdir()) == []


def test_a_checksum_or_a_word_that_there_is_none(tmp_path: Path, server: Server):
    with pytest.raises(DataError, match=r"--sha256 HEX, or --unverified"):
        download([server.url], tmp_path / "file.zip")
    with pytest.raises(DataError, match="64 hexadecimal digits"):
        download([server.url], tmp_path / "file.zip", sha256="abc")
    (tmp_path / "file.zip").write_bytes(CONTENT)  # one that is there already proves nothing, either
    with pytest.raises(DataError, match="--unverified"):
        download([server.url], tmp_path / "file.zip")
    assert server.asked == []
    assert download([server.url], tmp_path / "new.zip", unverified=True).read_bytes() == CONTENT


def exorl_zip() -> bytes:
    """Two episodes as ExORL stores them."""
    whole = BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for number in range(2):
            episode = BytesIO()
            rows = {"observation": np.zeros((4, 3)), "action": np.zeros((4, 2)), "discount": np.ones((4, 1))}
            arrays: dict[str, Any] = {name: values.astype("f4") for name, values in rows.items()}
            np.savez(episode, **arrays)
            archive.writestr(f"episode_{number:06}_3.npz", episode.getvalue())
    return whole.getvalue()


def test_an_import_notes_what_proved_its_download(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    content = exorl_zip()
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr("test_download.CONTENT", content)
    monkeypatch.setattr("zol.data.sources.exorl.URL", server.url)
    proofs: dict[str, dict[str, Any]] = {"proven": {"sha256": sha256}, "not": {"unverified": True}}
    for name, words in proofs.items():
        found = import_dataset("exorl/walker/rnd", tmp_path / name, cache=tmp_path / f"{name}-cache", **words)
        assert found.provenance["sha256"] == words.get("sha256", "unverified")
    with pytest.raises(DataError, match="--unverified"):
        import_dataset("exorl/walker/rnd", tmp_path / "neither", cache=tmp_path / "cache")
    local = import_dataset("exorl/walker/rnd", tmp_path / "local", from_dir=tmp_path / "not-cache")
    assert "sha256" not in local.provenance
