"""Debian's Chromium without a display, driven by playwright, and the patience that it needs."""

import re
import shutil
import time
from collections.abc import Callable
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]
SIZE = {"width": 1100, "height": 800}
PATIENCE = 180.0  # seconds for a page that is drawn in software on a machine with other work to do


def opened(browser: Any, address: str, script: str | None = None) -> Any:
    """The page of ``zol play`` at an address, once it shows numbers; ``script`` is run before its own."""
    page = browser.new_page(viewport=SIZE)
    if script is not None:
        page.add_init_script(script)
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(address)
    page.wait_for_selector("text=mean of 2 s")
    return page


def until(condition: Callable[[], bool], page: Any) -> None:
    """Wait while the browser goes on."""
    end = time.perf_counter() + PATIENCE
    while not condition():
        assert time.perf_counter() < end, "it did not happen"
        page.wait_for_timeout(20)


def shown_step(page: Any) -> int:
    """The number of the step that the page says the body has taken."""
    found = re.search(r"step (\d+) of", page.locator("body").inner_text())
    assert found is not None
    return int(found.group(1))
