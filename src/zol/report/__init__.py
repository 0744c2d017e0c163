"""Numbers one can trust: raw scores, paired bootstrap intervals, tables in several formats."""

from zol.report.render import csv_text, latex, markdown, print_table, table
from zol.report.scores import Cells, Scores, caveat, paired, per_task, summary
from zol.report.statistics import Array, Interval, bootstrap, bootstrap_all, number

__all__ = [
    "Array",
    "Cells",
    "Interval",
    "Scores",
    "bootstrap",
    "bootstrap_all",
    "caveat",
    "csv_text",
    "latex",
    "markdown",
    "number",
    "paired",
    "per_task",
    "print_table",
    "summary",
    "table",
]
