"""What a visitor can do on the page of ``zol play``, in a real browser."""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import opened, until

pytestmark = pytest.mark.slow

KEYS = 3  # on a slider


@pytest.fixture(scope="module")
def server(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("viser", reason="viser is not installed (extra play)")
    import zol
    from zol.play.server import PlayServer

    agent = zol.load(tiny_checkpoint)
    running = PlayServer(agent, "tiny", port=0, out=tmp_path_factory.mktemp("play"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def page(browser: Any, server: Any) -> Any:
    return opened(browser, server.address)


def sessions(server: Any) -> list[Any]:
    return [visitor.session for _, visitor in sorted(server.visitors.items())]


def obeyed(session: Any, revision: int) -> bool:
    """Whether the body follows the wish of this number."""
    return session.revision >= revision and session.latency is not None


def pixels(page: Any) -> Any:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


def test_the_page_is_not_blank_and_moves(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    page.wait_for_timeout(1500)
    first = pixels(page)[:, :600]
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 50
    step = session.tally.steps
    until(lambda: session.tally.steps != step, page)
    session.reset()
    page.wait_for_timeout(1500)
    assert np.abs(pixels(page)[:, :600] - first).max() > 30  # the ball is somewhere else


def test_a_slider_changes_the_latent_and_what_is_earned(page: Any, server: Any) -> None:
    session = sessions(server)[0]
    before, text = session.plain.z.clone(), session.text
    said = page.locator("code").first.inner_text()
    slider = page.get_by_role("slider").nth(1)  # the weight of the first field, after that of the task
    slider.focus()
    revision = session.revision
    for k in range(1, KEYS + 1):
        page.keyboard.press("ArrowRight")
        until(partial(obeyed, session, revision + k), page)
    assert not np.allclose(before, session.plain.z)
    assert session.text.startswith(f"{text} + {0.05 * KEYS:g} * between(radius")
    until(lambda: page.locator("code").first.inner_text() != said, page)
    assert session.tally.steps < 50 or session.paused is False
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
    until(partial(obeyed, session, revision + 1), page)
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
    step = theirs.tally.steps
    until(lambda: theirs.tally.steps != step, other)
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
