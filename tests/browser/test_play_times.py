"""How long ``zol play walker`` keeps people waiting, in a real browser: ``pytest -m slow -s tests/browser``.

The times are of this machine and of a browser that draws in software, on the same processor as the body. They
are printed; what is asserted is what should hold even beside other work.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import SIZE, opened, shown_step, until

pytestmark = pytest.mark.slow

WATCH = (Path(__file__).parent / "watch.js").read_text()
SMALL = {"width": 700, "height": 260}  # a window that is drawn quickly
KEYS = 15  # timed keys on a slider
STAGES = (
    "the page hears of it",
    "the change leaves the page",
    "the server asks for a latent",
    "the body takes its first step with it",
    "the new pose is sent",
    "the new pose is back in the browser",
    "the page takes it up",
    "two pictures later it is seen for certain",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import zol
    from zol.play.server import PlayServer

    running = PlayServer(zol.load("walker"), "walker", port=0, out=tmp_path_factory.mktemp("play"))
    yield running
    running.close()


def one_key(page: Any, visitor: Any) -> list[float]:
    """Press an arrow key on the slider in focus; milliseconds from the key to each stage."""
    session, pictures, draw = visitor.session, [], visitor.scene.draw
    to_clock = time.time() - time.perf_counter()

    def watched(*arguments: Any) -> None:
        draw(*arguments)
        pictures.append((arguments[0].revision, time.time()))

    page.evaluate("window.seen.length = 0")
    revision = session.revision
    visitor.scene.draw = watched
    page.keyboard.press("ArrowRight")
    until(lambda: session.revision > revision and session.latency is not None, page)
    until(lambda: any(drawn > revision for drawn, _ in pictures), page)
    visitor.scene.draw = draw
    sent = next(at for drawn, at in pictures if drawn > revision)
    # The pose may be back in the browser some hundredths of a millisecond before ``draw`` has returned.
    back = f"window.seen.find(e => e.what == 'batch' && e.moves && e.came > {1000 * sent - 1} && e.drawn)"
    until(lambda: page.evaluate(f"Boolean({back})"), page)
    batch = page.evaluate(back)
    key, change = (page.evaluate(f"window.seen.find(e => e.what == '{what}')") for what in ("key", "sent"))
    asked = 1000 * (session.changed_at + to_clock)
    obeyed = asked + 1000 * session.latency
    there = [key["heard"], change["at"], asked, obeyed, 1000 * sent]
    return [at - key["at"] for at in (*there, batch["came"], batch["at"], batch["drawn"])]


@pytest.mark.parametrize("size", [SIZE, SMALL], ids=["1100 x 800", "700 x 260"])
def test_a_slider_reaches_the_body(browser: Any, server: Any, size: dict[str, int]) -> None:
    page = opened(browser, server.address, WATCH)
    (visitor,) = server.visitors.values()
    slider = page.get_by_role("slider").nth(1)  # the weight of the first field, after that of the task
    slider.focus()
    page.set_viewport_size(size)
    page.wait_for_timeout(2000)
    before = visitor.session.plain.z.clone()
    waits = []
    for _ in range(KEYS):
        waits.append(one_key(page, visitor))
        page.wait_for_timeout(300)
    print(f"\n{size['width']} x {size['height']}, median and range of {KEYS} keys, ms after the key:")
    for stage, times in zip(STAGES, np.array(waits).T, strict=True):
        print(f"{np.median(times):6.0f}  {times.min():4.0f} to {times.max():4.0f}  {stage}")
    assert not np.allclose(before, visitor.session.plain.z)
    left, obeyed = np.array(waits)[:, [1, 3]].T
    assert (obeyed - left).min() < 100  # ours; a browser that shares its processor with others may be late
    page.close()
    until(lambda: not server.visitors, browser.new_page())


def test_the_command_answers_and_one_core_moves_the_body_in_real_time(browser: Any, tmp_path: Path) -> None:
    begin = time.perf_counter()
    command = [sys.executable, "-m", "zol", "play", "walker", "--port", "0", "--out", str(tmp_path)]
    core = max(os.sched_getaffinity(0))
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    try:
        assert running.stdout is not None
        address = next(found for line in running.stdout if (found := re.search(r"http://\S+", line)))
        printed = time.perf_counter() - begin
        page = opened(browser, address.group(), WATCH)
        shown = time.perf_counter() - begin
        came = page.evaluate("window.seen.find(e => e.moves && e.drawn).drawn")
        first = came / 1000 - (time.time() - time.perf_counter()) - begin
        step, now = shown_step(page), time.perf_counter()
        page.wait_for_timeout(4000)
        rate = (shown_step(page) - step) * 0.025 / (time.perf_counter() - now)
        page.close()
    finally:
        running.terminate()
        running.communicate()  # which closes its output, too
    print(
        f"\nseconds after the command: address {printed:.1f}, first picture {first:.1f}, numbers {shown:.1f};"
    )
    print(f"the body moves at {rate:.2f} of real time, with one core for the server")
    assert first < 30
    assert rate > 0.7
