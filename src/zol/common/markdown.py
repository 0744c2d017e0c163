"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right_aligned: bool = False
) -> str:
    """A table with these column titles; ``right_aligned`` is for numbers beside a first column of names."""
    rule = ["---", *["---:" if right_aligned else "---"] * (len(columns) - 1)]
    lines = ([str(cell).replace("|", "\\|") for cell in line] for line in (columns, rule, *rows))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
