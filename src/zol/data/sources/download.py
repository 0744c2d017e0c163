"""Downloads that go on where they stopped, from the first mirror that answers, and prove what they got."""

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from zol.common.errors import DataError
from zol.common.progress import Ticker

CHUNK = 1 << 20
TIMEOUT = 30.0
SECURE: tuple[str, ...] = ("https://",)
TROUBLE = (OSError, http.client.HTTPException)


def download(
    mirrors: Sequence[str],
    target: Path,
    *,
    sha256: str | None = None,
    unverified: bool = False,
    attempts: int = 5,
    pause: float = 1.0,
    progress: Progress | None = None,
) -> Path:
    """Fetch a file to ``target``; a part that is already there (``target.part``) is continued.

    ``mirrors`` are addresses of the same file, tried in turn. The file gets its name only when it is
    whole and proven to be the right one by its ``sha256``, unless ``unverified`` says that this is not asked.
    """
    _require_proof(target.name, sha256, unverified)
    for url in mirrors:
        _require_https(url)
    if target.exists():
        _verify(target, sha256)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    problems: list[str] = []
    for attempt in range(attempts * len(mirrors)):
        url = mirrors[attempt % len(mirrors)]
        try:
            _fetch(url, part, progress)
            break
        except TROUBLE as error:
            problems.append(f"{url}: {getattr(error, 'reason', error) or type(error).__name__}")
            time.sleep(pause * min(attempt, 10))
    else:
        size = part.stat().st_size if part.exists() else 0
        raise DataError(
            f"could not download {target.name} ({problems[-1]}); {size} bytes are kept in {part.name}: "
            "run the same command again to go on, or fetch it elsewhere and use --from-dir"
        )
    try:
        _verify(part, sha256)
    except DataError:
        part.unlink()  # going on from wrong bytes would never make a right file
        raise
    part.replace(target)
    return target


def _require_proof(name: str, sha256: str | None, unverified: bool) -> None:
    if sha256 is None and not unverified:
        raise DataError(
            f"nothing proves that {name} is what it should be: give its checksum, --sha256 HEX, or "
            "--unverified to take whatever the server sends"
        )
    if sha256 is not None and re.fullmatch("[0-9a-fA-F]{64}", sha256) is None:
        raise DataError(f"'{sha256}' is no SHA-256: that has 64 hexadecimal digits")


def _require_https(url: str) -> None:
    if not url.startswith(SECURE):
        raise DataError(f"'{url}' is not an https address: others can be read and changed on the way")


class _StaysSecure(urllib.request.HTTPRedirectHandler):
    """Follows servers to other addresses, but never out of https."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


OPENER = urllib.request.build_opener(_StaysSecure)


def _fetch(url: str, part: Path, progress: Progress | None) -> None:
    """Append to ``part`` what is missing of it; raises an OSError if the connection breaks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = OPENER.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have and _total(error.headers.get("Content-Range")) == have:
            return  # there is nothing beyond what we have
        raise
    with response:
        if response.status == 206 and not _begins_at(response.headers.get("Content-Range"), have):
            raise OSError("the server answered with another part of the file")
        begin = have if response.status == 206 else 0  # a server without ranges sends everything again
        left = response.headers.get("Content-Length")
        total = None if left is None else begin + int(left)
        bar = Ticker(progress, part.stem, total, done=begin, note="bytes")
        with part.open("ab" if begin else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.advance(len(chunk))
    if total is not None and part.stat().st_size != total:
        raise OSError(f"the connection closed after {part.stat().st_size} of {total} bytes")


def _begins_at(content_range: str | None, offset: int) -> bool:
    return content_range is not None and content_range.startswith(f"bytes {offset}-")


def _total(content_range: str | None) -> int | None:
    number = (content_range or "").rpartition("/")[2]
    return int(number) if number.isdigit() else None


def _verify(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise DataError(
            f"{path.name} has SHA-256 {found}, expected {sha256}: it was damaged or replaced on the way; "
            "remove it if it is still there and download it again"
        )
