"""Steps of ``zol play``: real time on the whole, at once when something is wanted, never far ahead."""

import pytest

from zol.play.pace import LATE, Pace


def test_without_wishes_steps_are_due_in_real_time() -> None:
    pace = Pace(10.0)
    for k in range(5):
        pace.stepped(0.05, now=10.0 + 0.05 * k + 0.001)
    assert pace.due == pytest.approx(10.25)


def test_a_wish_is_obeyed_at_once_and_time_goes_on_as_before() -> None:
    pace = Pace(10.0)
    pace.stepped(0.05, now=10.0)  # the next is due at 10.05
    assert pace.early(now=10.01) <= 0  # it may be taken now
    pace.stepped(0.05, now=10.01)
    assert pace.due == pytest.approx(10.10)  # as if the last one had been on time


def test_many_wishes_do_not_make_a_body_run_ahead() -> None:
    """Somebody drags a slider: a wish every 7 ms. Steps stay within one period of real time."""
    pace, now, steps = Pace(0.0), 0.0, 0
    while now < 10.0:
        if pace.early(now) <= 0:
            pace.stepped(0.05, now=now)
            steps += 1
        now += 0.007
    assert 200 <= steps <= 202


def test_a_body_that_is_too_late_does_not_catch_up() -> None:
    pace = Pace(0.0)
    pace.stepped(0.05, now=1.0)
    assert pace.due == 1.0
    pace.stepped(0.05, now=1.0 + LATE)
    assert pace.due == pytest.approx(1.05)  # a little late: it does
