"""Who may reach the page of ``zol play``: loopback by default, and elsewhere those who know the token."""

import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import zol
from zol.common.errors import CheckpointError, ZolError
from zol.play.gate import Gate, is_loopback, require_token
from zol.play.server import PlayServer
from zol.session import Agent

TOKEN = "open-sesame-42"


class Page(BaseHTTPRequestHandler):
    """What stands behind the door."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"inside")

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    page = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    opened = Gate("127.0.0.1", 0, TOKEN, page.server_port)
    yield opened
    opened.close()
    page.shutdown()
    page.server_close()


def asked(gate: Gate, path: str, **headers: str) -> tuple[int, str, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.getheader("Set-Cookie")
    connection.close()
    return found


def test_nothing_gets_through_without_the_token(gate: Gate) -> None:
    for path, headers in (
        ("/", {}),
        ("/?token=", {}),
        ("/?token=open-sesame-43", {}),
        ("/index.html?tokens=" + TOKEN, {}),
        ("/", {"Cookie": "zol-play=wrong"}),
        ("/", {"Cookie": "other=" + TOKEN}),
        ("/", {"Cookie": "\x01;;=,"}),
        ("/", {"Upgrade": "websocket", "Connection": "Upgrade"}),
    ):
        status, text, cookie = asked(gate, path, **headers)
        assert (status, cookie) == (403, None), path
        assert "token" in text


def test_the_token_becomes_a_cookie_and_the_cookie_opens(gate: Gate) -> None:
    status, _, cookie = asked(gate, f"/?token={TOKEN}")
    assert status == 303
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert asked(gate, "/", Cookie=cookie.split(";")[0])[:2] == (200, "inside")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    require_token(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "example.org"])
def test_every_other_address_asks_for_one(host: str) -> None:
    with pytest.raises(ZolError, match=r"give a --token that they have to know.*ssh -L"):
        require_token(host, None)
    for weak in ("short", "with space 12", "ümläute-lang", ""):
        with pytest.raises(ZolError, match="8 or more letters"):
            require_token(host, weak)
    require_token(host, TOKEN)


def test_the_command_refuses_before_anything_is_loaded(
    zol_command: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = zol_command("play", "no-such-model", "--host", "0.0.0.0")
    assert code == 2
    assert "give a --token" in err


def test_the_command_says_where_the_page_is(
    zol_command: Callable[..., tuple[int, str, str]],
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the door stands the real page, and Ctrl-C closes both."""
    pytest.importorskip("viser")
    seen = []

    def wait(seconds: float) -> None:  # instead of sleeping until somebody presses Ctrl-C
        address = servers[0].address
        assert address.endswith(f"/?token={TOKEN}")
        gate = servers[0]._gate
        seen.append(asked(gate, "/")[0])
        seen.append(asked(gate, "/", Cookie=f"zol-play={TOKEN}")[0])
        raise KeyboardInterrupt

    servers: list[Any] = []
    monkeypatch.setattr("zol.cli.play.time.sleep", wait)
    made = PlayServer.__init__

    def remembered(self: PlayServer, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        servers.append(self)

    monkeypatch.setattr(PlayServer, "__init__", remembered)
    words = ["--host", "0.0.0.0", "--port", "0", "--token", TOKEN, "--reward", "radius > 1"]
    code, out, err = zol_command("play", str(tiny_checkpoint), *words, "--out", str(tmp_path))
    assert code == 0, err
    assert "plays at http://0.0.0.0:" in out
    assert "the page is closed" in out
    assert seen == [403, 200]


def test_a_model_without_a_world_has_no_body(tiny_checkpoint: Path) -> None:
    pytest.importorskip("viser")
    agent = zol.load(tiny_checkpoint)
    nameless = Agent(agent.checkpoint)
    nameless.__dict__["world"] = None
    with pytest.raises(CheckpointError, match="no body to play with"):
        PlayServer(nameless)
