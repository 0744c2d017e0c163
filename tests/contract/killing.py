"""Processes to kill: forked from a server that has torch loaded, so that twenty kills take seconds."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["zol.data.explore", "torch._dynamo"])  # the first optimiser imports it


def run(job: Callable[..., None], *arguments: Any, kill_after: float | None = None) -> list[Any]:
    """Run ``job(say, *arguments)`` in a process; what it said until it ended or was killed.

    The clock of ``kill_after`` starts when the job says its first word.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_call, args=(theirs, job, arguments))
    process.start()
    theirs.close()
    said = []
    try:
        said.append(ours.recv())
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        while True:
            said.append(ours.recv())
    except EOFError:
        pass
    process.join()
    if kill_after is None:
        assert process.exitcode == 0
    return said


def _call(connection: Connection, job: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    job(connection.send, *arguments)
