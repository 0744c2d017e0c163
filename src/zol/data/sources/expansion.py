"""How much a compressed file may become: a few kilobytes must not fill a machine.

What unpacks to ``SMALL`` bytes is always read. Beyond that an archive may grow by the factor ``RATIO``:
numbers from simulators shrink to a half or a tenth, and only files made to do harm, or empty ones, shrink to
a fiftieth. Whoever has such data in earnest stores them without compression.
"""

from zol.common.errors import DataError

SMALL = 64 << 20
RATIO = 50


class Expansion:
    """What has been unpacked from a file of ``stored`` bytes so far."""

    def __init__(self, stored: int) -> None:
        self.stored, self.unpacked = stored, 0

    def add(self, unpacked: int, stored: int, where: str) -> None:
        """Count a piece of ``stored`` bytes that says it unpacks to ``unpacked``, before it does."""
        self.unpacked += unpacked
        for size, packed in ((unpacked, stored), (self.unpacked, self.stored)):
            if size > max(SMALL, RATIO * packed):
                raise DataError(
                    f"{where} has {packed:,} bytes and would unpack to {size / 1e6:,.0f} MB, more than "
                    f"{SMALL >> 20} MB and {RATIO} times its size: it was not read. Real data of this kind "
                    "are stored without compression"
                )
