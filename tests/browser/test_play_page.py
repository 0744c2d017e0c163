"""``zol play`` in a real browser: Debian's Chromium without a display, driven by playwright.

The times that are printed (``pytest -m slow -s``) are of this machine and of a browser that draws in
software: they are reported, never asserted.
"""

import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

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
KEYS = 9  # timed keys on a slider
PATIENCE = 180.0  # seconds for a page that is drawn in software on a machine with other work to do


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    pytest.importorskip("viser", reason="viser is not installed (extra play)")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("viser", reason="viser is not installed (extra play)")
    import zol
    from zol.play.server import PlayServer

    agent = zol.load(tiny_checkpoint)
    running = PlayServer(agent, "tiny", port=0, out=tmp_path_factory.mktemp("play"))
    yield running
    running.close()


def opened(browser: Any, address: str) -> Any:
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(address)
    page.wait_for_selector("text=mean of 2 s")
    return page


@pytest.fixture(scope="module")
def page(browser: Any, server: Any) -> Any:
    begin = time.perf_counter()
    found = opened(browser, server.address)
    shown, (visitor,) = time.perf_counter() - begin, server.visitors.values()
    print(f"\nafter the page was asked for: first picture sent {visitor.first_picture - begin:.1f} s,")
    print(f"first numbers seen by the test {shown:.1f} s")
    return found


def sessions(server: Any) -> list[Any]:
    return [visitor.session for _, visitor in sorted(server.visitors.items())]


def until(condition: Any, page: Any) -> None:
    """Wait while the browser goes on."""
    end = time.perf_counter() + PATIENCE
    while not condition():
        assert time.perf_counter() < end, "it did not happen"
        page.wait_for_timeout(20)


def pixels(page: Any) -> Any:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


def pictures(page: Any) -> float:
    """Median time between two pictures of the browser, in ms."""
    times = page.evaluate(
        """() => new Promise(done => {
            const times = [];
            const tick = now => {
                times.push(now);
                if (times.length > 30) done(times); else requestAnimationFrame(tick);
            };
            requestAnimationFrame(tick);
        })"""
    )
    return float(np.median(np.diff(times)))


def test_the_page_is_not_blank_and_moves(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    page.wait_for_timeout(1500)
    first = pixels(page)[:, :600]
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 50
    step = session.steps
    until(lambda: session.steps != step, page)
    session.reset()
    page.wait_for_timeout(1500)
    assert np.abs(pixels(page)[:, :600] - first).max() > 30  # the ball is somewhere else


def test_a_slider_changes_the_latent_and_what_is_earned(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    before, text = session.plain.z.clone(), session.text
    said = page.locator("code").first.inner_text()
    slider = page.get_by_role("slider").nth(1)  # the weight of the first field, after that of the task
    slider.focus()
    page.set_viewport_size({"width": 700, "height": 260})  # drawing in software is what takes the time
    page.wait_for_timeout(1000)
    waits = []
    for _ in range(KEYS):
        revision, begin = session.revision, time.perf_counter()
        page.keyboard.press("ArrowRight")
        until(lambda before=revision: session.revision > before and session.latency is not None, page)
        waits.append((1000 * (session.changed_at - begin + session.latency), 1000 * session.latency))
    whole, ours = np.median(waits, axis=0)
    print(
        f"\nfrom a key on a slider to the first step that obeys: {whole:.0f} ms (median of {KEYS}), of which"
    )
    print(f"{whole - ours:.0f} ms in the browser and on the way, {ours:.0f} ms for the latent and the step;")
    print(f"one picture took the browser {pictures(page):.0f} ms (median)")
    page.set_viewport_size(SIZE)
    assert not np.allclose(before, session.plain.z)
    assert session.text.startswith(f"{text} + {0.05 * KEYS:g} * between(radius")
    until(lambda: page.locator("code").first.inner_text() != said, page)
    assert session.steps < 50 or session.paused is False
    assert page.locator("pre").first.inner_text().startswith(f"{text} + {0.05 * KEYS:g} * between(radius")


def test_a_slider_that_is_dragged_with_the_mouse(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    slider = page.get_by_role("slider").nth(1)
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before, revision = session.text, session.revision
    page.mouse.move(x, y)
    page.mouse.down()
    for k in range(1, 6):
        page.mouse.move(x + 6 * k, y)
    page.mouse.up()
    until(lambda: session.revision > revision and session.latency is not None, page)
    assert session.text != before
    assert "between(radius" in session.text


def test_a_pose_is_frozen_and_gone_to(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    page.get_by_role("tab", name="Goal").click()
    page.get_by_role("button", name="Freeze this pose").click()
    until(lambda: session.ghost is not None, page)
    goal = session.ghost.clone()
    page.get_by_role("button", name="Go there").click()
    until(lambda: session.text == "goal" and session.latency is not None, page)
    assert session.plain.method == "goal"
    assert np.allclose(session.prompted.task.goal, goal[:2], atol=1e-5)
    page.get_by_role("button", name="Forget the pose").click()
    until(lambda: session.ghost is None, page)


def test_a_typed_reward_and_a_wrong_one(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    page.get_by_role("tab", name="Type").click()
    box = page.locator("textarea").first
    box.fill("1 - (raduis > 1)")
    page.wait_for_selector("text=did you mean 'radius'?")
    revision = session.revision
    box.fill("between(radius, 1.2, 1.4, 0.1)")
    page.wait_for_selector("text=The body follows it.")
    assert session.revision > revision
    assert session.text == "between(radius, 1.2, 1.4, 0.1)"
    box.fill("radius > 55")
    page.wait_for_selector("text=zero in all")
    assert session.text == "between(radius, 1.2, 1.4, 0.1)"


def test_two_visitors_do_not_disturb_each_other(page: Any, browser: Any, server: Any) -> None:
    other = opened(browser, server.address)
    mine, theirs = sessions(server)
    assert mine is not theirs
    assert mine.world is not theirs.world
    before = theirs.text, theirs.revision
    mine.ask("position[0]")
    page.get_by_role("button", name="pause").click()
    until(lambda: mine.paused, page)
    assert (theirs.text, theirs.revision) == before
    assert not theirs.paused
    step = theirs.steps
    until(lambda: theirs.steps != step, other)
    page.get_by_role("button", name="pause").click()
    other.close()
    until(lambda: len(server.visitors) == 1, page)


def test_adapting_shows_a_second_body(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    session.ask("radius > 1")
    page.get_by_role("combobox", name="method").click()
    page.get_by_role("option", name="ridge").click()
    page.get_by_role("button", name="Adapt", exact=True).click()
    until(lambda: session.second == "adapted", page)
    page.wait_for_selector("text=found by ridge")
    assert "adapted" in page.locator("table").first.inner_text()
