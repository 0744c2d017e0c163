"""Torch's threads where they would only compete with other work on the same cores."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread(wanted: bool = True) -> Iterator[None]:
    """Run torch operations on one thread inside the block, if ``wanted``.

    Small networks gain nothing from more, idle threads spin on the cores that physics needs, and results do
    not depend on the number of cores.
    """
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
