"""Jobs that are killed at a chosen change of their files, or at any moment, under a process id that repeats.

In containers the first process of every run has the same id. Where the system lets us, a job runs in a
namespace of process ids of its own, where its id is 1; elsewhere it is told so.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from killing import CONTEXT

NEW_PROCESS_IDS = 0x20000000  # CLONE_NEWPID
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect"}


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    killed: bool
    changes: int  # of files below its folder; where it was killed they are not told
    seconds: float


def run(
    job: Callable[..., None],
    folder: Path,
    *arguments: Any,
    at_change: int | None = None,
    after: float | None = None,
) -> Ended:
    """Run ``job(folder, *arguments)``; kill it at a change of the files in its folder, or after seconds."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_serve, args=(theirs, job, folder, arguments, at_change))
    process.start()
    theirs.close()
    number, begun = ours.recv(), time.perf_counter()
    killed, changes = False, 0
    try:
        if after is not None and not ours.poll(after):
            killed = True
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        told = ours.recv()
        if told == "now":
            killed = True
            os.kill(number, signal.SIGKILL)
        else:
            changes, killed = told, False  # it was done before it could be killed
    except EOFError:
        assert killed, "the job failed: its error is above"
    process.join()
    ours.close()
    return Ended(killed, changes, time.perf_counter() - begun)


def _serve(
    pipe: Connection, job: Callable[..., None], folder: Path, arguments: tuple[Any, ...], at: int | None
) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None).unshare(NEW_PROCESS_IDS) == 0:
        number = os.fork()  # the child is the first process of the new namespace
        if number:
            pipe.send(number)
            pipe.close()
            os.waitpid(number, 0)
            return
        assert os.getpid() == 1
    else:
        pipe.send(os.getpid())
        os.getpid = lambda: 1
    _work(pipe, job, folder, arguments, at)
    pipe.close()
    os._exit(0)


def _work(
    pipe: Connection, job: Callable[..., None], folder: Path, arguments: tuple[Any, ...], at: int | None
) -> None:
    import torch

    torch.set_num_threads(1)
    count = 0

    def watch(event: str, details: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and str(folder) in str(details[0]):
            count += 1
            if count == at:
                pipe.send("now")
                time.sleep(60)  # until the kill comes

    sys.addaudithook(watch)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    job(folder, *arguments)
    pipe.send(count)
