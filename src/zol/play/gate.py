"""A door in front of the page for addresses that others can reach: without the token nothing gets through.

The page's own server (viser) knows no passwords. So it listens on loopback, and this door on the address that
was asked for. Every connection has to show the token first, as ``?token=…`` (then the browser is given a
cookie) or as that cookie; only then are its bytes passed on, both ways. Loopback alone needs no door.
"""

import asyncio
import hmac
import ipaddress
import re
import threading
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from zol.common.errors import ZolError

HEAD = 16_384  # bytes of a request that are read before it has shown anything
PATIENCE = 10.0  # seconds to show it
COOKIE = "zol-play"
SHORTEST = 8  # characters of a token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_token(host: str, token: str | None) -> None:
    """Refuse an address that others can reach without a token that keeps them out."""
    if is_loopback(host):
        return
    if token is None:
        raise ZolError(
            f"--host {host} lets everybody in the network play with this machine: give a --token that they "
            "have to know, or stay on 127.0.0.1 and come through ssh -L 8017:127.0.0.1:8017 THIS-MACHINE"
        )
    if not re.fullmatch(rf"[A-Za-z0-9_-]{{{SHORTEST},}}", token):
        raise ZolError(
            f"a --token is made of {SHORTEST} or more letters, digits, - and _: it is part of an address"
        )


class Gate:
    """Listens on an address and passes on what has shown the token."""

    def __init__(self, host: str, port: int, token: str, inner: int) -> None:
        """``inner`` is the port of the page on loopback."""
        self.host, self.port, self._token, self._inner = host, port, token, inner
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._failed: OSError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="zol play: door")
        self._thread.start()
        self._ready.wait()
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            server = self._loop.run_until_complete(asyncio.start_server(self._serve, self.host, self.port))
            self.port = server.sockets[0].getsockname()[1]
        except OSError as error:
            self._failed = error
            self._loop.close()
            return
        finally:
            self._ready.set()
        self._loop.run_forever()
        server.close()
        going_on = asyncio.all_tasks(self._loop)
        for task in going_on:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*going_on, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.close()
            return
        shown = self._shown(head)
        if shown == "cookie":
            await self._pass_on(head, reader, writer)
            return
        writer.write(_answer(self._token if shown == "query" else None))
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def _shown(self, head: bytes) -> str:
        """How the token was shown: "cookie", "query", or "" if it was not."""
        request, *lines = head[:HEAD].decode("latin-1").split("\r\n")
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip().lower() == "cookie" and self._is_token(_cookie(value)):
                return "cookie"
        words = request.split(" ")
        query = parse_qs(urlsplit(words[1]).query) if len(words) == 3 else {}
        return "query" if self._is_token(query.get("token", [""])[0]) else ""

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    async def _pass_on(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._inner)
        except OSError:
            writer.close()
            return
        inner_writer.write(head)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header.strip()).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _answer(token: str | None) -> bytes:
    """The way in with a cookie, or the way out."""
    if token is None:
        text = "This page asks for its token: open the address that zol play printed.\n"
        head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}"
        return f"{head}\r\nConnection: close\r\n\r\n{text}".encode()
    cookie: SimpleCookie = SimpleCookie({COOKIE: token})
    cookie[COOKIE]["httponly"], cookie[COOKIE]["samesite"], cookie[COOKIE]["path"] = True, "Strict", "/"
    lines = [
        "HTTP/1.1 303 See Other",
        "Location: /",
        cookie.output(),
        "Content-Length: 0",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
