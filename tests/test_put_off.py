"""When a client's loop does what can wait."""

from __future__ import annotations

from edge.put_off import MOST, PutOff


def test_what_can_wait_is_done_before_a_sleep_that_no_outcome_led_to() -> None:
    put_off = PutOff()
    assert put_off.due()
    put_off.gave()
    assert not put_off.due()
    assert put_off.due()


def test_what_can_wait_is_done_at_last_though_every_sleep_follows_upon_an_outcome() -> None:
    put_off = PutOff()
    done: list[bool] = []
    for _ in range(2 * (MOST + 1)):
        put_off.gave()
        done.append(put_off.due())
    assert done == 2 * [*MOST * [False], True]


def test_a_pause_lets_as_much_be_put_off_as_before() -> None:
    put_off = PutOff()
    for _ in range(3):
        for _ in range(MOST):
            put_off.gave()
            assert not put_off.due()
        assert put_off.due()
