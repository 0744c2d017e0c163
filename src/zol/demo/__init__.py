"""The whole story on the donut in a few minutes: what ``make demo`` runs."""

from zol.demo.story import DemoConfig, run

__all__ = ["DemoConfig", "run"]
