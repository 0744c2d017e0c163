"""The whole story on the donut in a few minutes: what ``make demo`` runs."""

from zol.demo.pipeline import run
from zol.demo.story import DemoConfig

__all__ = ["DemoConfig", "run"]
