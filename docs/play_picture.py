"""The picture of ``zol play`` in the documentation, made again: ``make play-picture``.

A cheetah is asked for a typed reward, a better latent is searched for, and both bodies are photographed in
Debian's Chromium (``apt-get install chromium``) as a visitor sees them.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

import zol
from zol.play.server import PlayServer

REWARD = "between(speed, -inf, -2, 2)"  # walk backwards
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SIZE = {"width": 1280, "height": 800}
PATIENCE = 600_000  # milliseconds


def main(out: Path, model: str = "cheetah", method: str = "rehearse") -> None:
    """Write the picture."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    server = PlayServer(zol.load(model), model, port=0, out=out.parent / "never-written")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(PATIENCE)
        page.goto(server.address)
        page.wait_for_selector("text=mean of 2 s")
        (visitor,) = server.visitors.values()
        page.get_by_role("tab", name="Type").click()
        page.locator("textarea").first.fill(REWARD)
        page.wait_for_selector("text=The body follows it.")
        visitor.session.adapt(method)
        page.wait_for_selector(f"text=found by {method}")
        page.wait_for_timeout(6000)
        for button in page.locator("[class*=Notification] button").all():  # that this browser has no GPU
            button.click()
        page.wait_for_timeout(1500)
        page.screenshot(path=out)
        browser.close()
    server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images" / "play.png")
