"""Tables as text: terminal, Markdown, LaTeX and CSV. A table is a header and rows of strings."""

import csv
import io

from rich import box
from rich.console import Console
from rich.table import Table

from zol.common.markdown import markdown_table
from zol.report.scores import Cells

# What LaTeX would not print as it stands.
LATEX = str.maketrans(
    {
        "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
        "Δ": r"$\Delta$", "γ": r"$\gamma$", "λ": r"$\lambda$", "χ": r"$\chi$", "×": r"$\times$",
        "−": r"$-$", "·": r"$\cdot$", "≥": r"$\geq$", "→": r"$\to$", "π": r"$\pi$", "μ": r"$\mu$",
        "≈": r"$\approx$", "ᵀ": r"$^\top$", "η": r"$\eta$", "½": r"$\tfrac12$",
    }
)  # fmt: skip

WIDEST = 10_000  # columns of a terminal that nothing is too wide for


def table(cells: Cells, title: str = "", caption: str = "", *, wrap_first: int | None = None) -> Table:
    """For the terminal; where that is narrow cells take several lines, because a number must not be cut."""
    grid = Table(
        title=title or None,
        caption=caption or None,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for k, name in enumerate(cells[0]):
        width = wrap_first if k == 0 else None  # long names in several lines, at spaces
        grid.add_column(name, justify="left" if k == 0 else "right", overflow="fold", max_width=width)
    for row in cells[1]:
        grid.add_row(*row)
    return grid


def print_table(console: Console, cells: Cells, title: str = "", caption: str = "") -> None:
    """Print a table; one that is wider than the terminal continues below, with its first column repeated.

    So no number is cut and no word is broken, however narrow the terminal is.
    """
    if title:
        console.print(title, highlight=False)
    for part in fitting(console, cells):
        console.print(table(part, wrap_first=console.width // 2))
    if caption:
        console.print(caption, highlight=False)


def fitting(console: Console, cells: Cells) -> list[Cells]:
    """Groups of columns that the terminal is wide enough for, each led by the first column."""
    columns, rows = cells
    room = console.options.update_width(WIDEST)
    parts: list[list[int]] = [[0]]
    for k in range(1, len(columns)):
        tried = _some_columns(cells, [*parts[-1], k])
        wide = console.measure(table(tried, wrap_first=console.width // 2), options=room).maximum
        if wide > console.width and len(parts[-1]) > 1:
            parts.append([0, k])
        else:
            parts[-1].append(k)
    return [_some_columns((columns, rows), part) for part in parts]


def _some_columns(cells: Cells, which: list[int]) -> Cells:
    return [cells[0][k] for k in which], [[row[k] for k in which] for row in cells[1]]


def markdown(cells: Cells) -> str:
    """A Markdown table."""
    return markdown_table(*cells, right_aligned=True) + "\n"


def latex(cells: Cells, caption: str = "", label: str = "") -> str:
    r"""A LaTeX table (``\usepackage{booktabs}``)."""
    columns, rows = cells
    lines = [" & ".join(cell.translate(LATEX) for cell in line) + r" \\" for line in [columns, *rows]]
    body = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join(
        [
            r"\begin{table}[h]",
            r"\centering\small",
            rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}",
            *body,
            r"\end{tabular}",
            *([rf"\caption{{{caption.translate(LATEX)}}}"] if caption else []),
            *([rf"\label{{{label}}}"] if label else []),
            r"\end{table}",
            "",
        ]
    )


def csv_text(cells: Cells) -> str:
    """The table as comma-separated values, the header first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([cells[0], *cells[1]])
    return text.getvalue()
