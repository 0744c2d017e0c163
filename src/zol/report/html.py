"""Self-contained HTML pages from the templates beside this file; every value is escaped by jinja2."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

PAGES = Environment(
    loader=PackageLoader("zol.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def embedded(picture: Path) -> str:
    """A picture (png, webp …) as an address that needs no second file."""
    return (
        f"data:image/{picture.suffix.removeprefix('.')};base64,"
        + base64.b64encode(picture.read_bytes()).decode()
    )


def paragraphs(text: str) -> list[tuple[str, list[str]]]:
    """Each paragraph of a plain text: its sentences, and the lines that begin with ``- `` as points."""
    found = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        points = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
        found.append((" ".join(line for line in lines if not line.startswith("- ")), points))
    return found


PAGES.filters |= {"embedded": embedded, "paragraphs": paragraphs}


def page(template: str, **values: Any) -> str:
    """The page that a template makes of these values."""
    return PAGES.get_template(f"{template}.html").render(**values)
