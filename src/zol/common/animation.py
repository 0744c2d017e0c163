"""Moving pictures as one small file that every browser shows: animated WebP."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from zol.common.errors import DataError
from zol.common.files import write_bytes

Colour = tuple[int, int, int]
INK: Colour = (34, 34, 34)
PAPER: Colour = (255, 255, 255)


def require_webp(path: Path) -> None:
    """Refuse another kind of file; asked before minutes are spent on drawing."""
    if path.suffix != ".webp":
        raise DataError(f"a moving picture is written to a .webp file, got '{path.name}'")


def write_animation(
    path: Path, pictures: Sequence[NDArray[np.uint8]], fps: float, *, hold: float = 1.0, quality: int = 75
) -> Path:
    """Write pictures ``[H, W, 3]`` as an endless film; the last one stays for ``hold`` seconds."""
    require_webp(path)
    if not pictures:
        raise DataError(f"there are no pictures for {path}")
    frames = [Image.fromarray(picture) for picture in pictures]
    times = [round(1000 / fps)] * (len(frames) - 1) + [round(1000 * hold)]
    data = BytesIO()
    frames[0].save(
        data,
        "WEBP",
        save_all=True,
        append_images=frames[1:],
        duration=times,
        loop=0,
        quality=quality,
        method=4,
    )
    write_bytes(path, data.getvalue())
    return path


def lettering(
    picture: NDArray[np.uint8],
    text: str,
    place: tuple[float, float],
    *,
    size: float = 14,
    anchor: str = "lt",
    colour: Colour = INK,
) -> NDArray[np.uint8]:
    """The picture with a line of text; ``anchor`` says which point of the text ``place`` is, as in PIL."""
    image = Image.fromarray(picture)
    ImageDraw.Draw(image).text(place, text, fill=colour, font=ImageFont.load_default(size), anchor=anchor)
    return np.asarray(image)
