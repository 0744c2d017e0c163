"""Whether anything listens where a Ray cluster is said to be, found out in seconds.

Ray itself tries for minutes, and a cluster that died leaves a file behind that says it is still there
(``ray_current_cluster``), which ``--ray auto`` would believe.
"""

import os
import socket
import tempfile
from pathlib import Path

from zol.common.errors import ZolError

PATIENCE = 5.0  # seconds for a connection
CURRENT = "ray_current_cluster"


def require_listener(address: str) -> None:
    """Stop if nothing listens at ``HOST:PORT``, or where ``auto`` would look; the rest is Ray's matter."""
    found = address if address != "auto" else os.environ.get("RAY_ADDRESS") or _current()
    host, _, port = (found or "").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        left = f", which {_file()} names" if found != address and "RAY_ADDRESS" not in os.environ else ""
        raise ZolError(
            f"no Ray cluster answers at '{address}' (ray start --head starts one): nothing listens at "
            f"{found}{left}: {error.strerror or error}"
        ) from error


def _file() -> Path:
    return Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / CURRENT


def _current() -> str | None:
    """What the last cluster on this machine has written down, if it has."""
    try:
        return _file().read_text().strip()
    except OSError:
        return None
