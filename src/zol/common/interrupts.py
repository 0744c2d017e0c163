"""Ctrl-C and SIGTERM: the current step is finished first, and what is kept and what is lost is said truly."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """An interrupt whose text says what is kept, what is lost and how to go on."""


@contextmanager
def noticed() -> Iterator[Callable[[], bool]]:
    """Inside the block the first interrupt is only noted; the function given tells whether there was one.

    A second one interrupts at once. Signals reach the main thread alone: elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
