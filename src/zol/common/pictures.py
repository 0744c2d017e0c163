"""Figures as files that appear whole or not at all."""

from io import BytesIO
from pathlib import Path
from typing import Any

from zol.common.errors import DataError, unknown_name
from zol.common.files import write_bytes

FORMATS = ("png", "pdf", "svg", "jpg")


def require_picture(path: Path) -> str:
    """The format that the name of a picture asks for."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise DataError(f"{path}: " + unknown_name("picture format", kind, FORMATS))
    return kind


def write_picture(figure: Any, path: Path, **options: Any) -> Path:
    """Write a figure of matplotlib; ``options`` are those of ``savefig``."""
    data = BytesIO()
    figure.savefig(data, format=require_picture(path), **options)
    write_bytes(path, data.getvalue())
    return path
