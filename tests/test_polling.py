"""When a loop looks for what comes before it sleeps."""

from __future__ import annotations

import pytest

from shared.polling import PAUSE_NS, Polling

MOST = 1_000_000


def after(polling: Polling, kind: str, waits: list[int]) -> int:
    """The window after waits of these lengths, at the end of each of which something came."""
    for waited in waits:
        polling.waited(kind, waited, came=True)
    return polling.window(kind, 0)


def test_nobody_looks_before_short_waits_were_seen() -> None:
    assert Polling(MOST).window("answer", 0) == 0


@pytest.mark.parametrize("waited", [1, MOST])
def test_after_a_few_short_waits_it_looks_for_as_long_as_it_may(waited: int) -> None:
    polling = Polling(MOST)
    assert after(polling, "answer", [waited] * 5) == 0
    assert after(polling, "answer", [waited]) == MOST


def test_after_a_few_long_waits_it_sleeps_at_once_again() -> None:
    polling = Polling(MOST)
    assert after(polling, "answer", [1] * 50) == MOST
    assert after(polling, "answer", [MOST + 1] * 5) == MOST
    assert after(polling, "answer", [MOST + 1]) == 0


def test_kinds_are_told_apart() -> None:
    """A camera's agent: the answer comes soon, the next frame does not."""
    polling = Polling(MOST)
    for _ in range(20):
        polling.waited("answer", 600_000, came=True)
        polling.waited("request", 32_000_000, came=True)
    assert polling.window("answer", 0) == MOST
    assert polling.window("request", 0) == 0


def test_a_timer_that_ended_a_short_wait_says_nothing_and_a_long_one_that_nothing_came() -> None:
    polling = Polling(MOST)
    for _ in range(50):
        polling.waited("answer", 1, came=False)
    assert polling.window("answer", 0) == 0
    assert after(polling, "answer", [1] * 50) == MOST
    for _ in range(6):
        polling.waited("answer", 2 * MOST, came=False)
    assert polling.window("answer", 0) == 0


def test_where_others_often_want_the_core_it_sleeps_for_a_while() -> None:
    polling = Polling(MOST)
    assert after(polling, "answer", [1] * 50) == MOST
    for _ in range(2):
        polling.polled(500, 1000, crowded=True)
        assert polling.window("answer", 1000) == MOST
    polling.polled(500, 1000, crowded=True)
    assert polling.window("answer", 1000) == 0
    assert polling.window("answer", 1000 + PAUSE_NS - 1) == 0
    assert polling.window("answer", 1000 + PAUSE_NS) == MOST


def test_a_core_that_is_held_up_now_and_then_is_not_wanted_by_others() -> None:
    polling = Polling(MOST)
    assert after(polling, "answer", [1] * 50) == MOST
    for number in range(1000):
        polling.polled(500, number, crowded=number % 10 == 0)
        assert polling.window("answer", number) == MOST


def test_with_nothing_to_spend_it_never_looks() -> None:
    assert after(Polling(0), "answer", [0] * 50) == 0


def test_what_was_spent_is_counted() -> None:
    polling = Polling(MOST)
    polling.polled(500, 0, crowded=False)
    polling.polled(20, 0, crowded=True)
    assert polling.polled_ns == 520
