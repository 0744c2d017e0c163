"""Processes to kill: forked from a server that has torch loaded, so that twenty kills take seconds."""

import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
# torch._dynamo: the first optimiser imports it
CONTEXT.set_forkserver_preload(["zol.collect.explore", "zol.train", "zol.models.fb", "torch._dynamo"])


def run(
    job: Callable[..., None], *arguments: Any, kill_after: float | None = None, words: int = 1
) -> list[Any]:
    """Run ``job(say, *arguments)`` in a process; what it said until it ended or was killed.

    The clock of ``kill_after`` starts when the job has said that many ``words``.
    """
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_call, args=(theirs, job, arguments))
    process.start()
    theirs.close()
    said = []
    try:
        for _ in range(words):
            said.append(ours.recv())
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        while True:
            said.append(ours.recv())
    except EOFError:
        pass
    process.join()
    assert process.exitcode == 0 or (kill_after is not None and process.exitcode == -signal.SIGKILL)
    return said


def _call(connection: Connection, job: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    job(connection.send, *arguments)
