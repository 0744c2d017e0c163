"""Tell glibc to keep freed memory, which avoids page faults in training.

glibc gives large freed blocks back to the kernel, and a training step that frees dozens of megabytes gets
them back zeroed and page by page in the next one: thousands of page faults per step, a sixth of its time
(docs/speed.md). Told to keep them, it has none.
"""

import ctypes
import sys

KEPT = 1 << 30  # bytes at the top of the heap that may stay unused
SERVED_FROM_HEAP = 1 << 28  # blocks up to this size are not mapped and unmapped one by one
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def keep_freed_memory() -> bool:
    """Keep what this process frees, up to a gigabyte, for its next allocations; whether that was possible.

    It holds for the whole process and costs nothing but memory that has been used before. Other C libraries
    than glibc (macOS, musl) are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, SERVED_FROM_HEAP)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT))
