"""Work behind the page: the bodies and whoever moves a slider go first."""

import os
import sys
import threading

NICENESS = 10


def step_back() -> None:
    """Let other threads go before the one that calls this."""
    if sys.platform == "linux":  # where a thread has a niceness of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
