"""A browser for the tests of the page."""

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import CHROMIUM, FLAGS


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    pytest.importorskip("viser", reason="viser is not installed (extra play)")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()
