"""``python -m zol``, which is also how torchrun starts it: ``torchrun -m zol train fb …``."""

from zol.cli import main

main()
