"""Epsilon, margins, and when the promise cannot be kept."""

from __future__ import annotations

import pytest
from doctor_rig import wakes

from shared.doctor.findings import Finding
from shared.doctor.promise import epsilon_ms, let_go_ms, promise, sentences
from shared.settings import Insurance

MARGINS = Insurance(guard_ms=0.5, hold_ms=0.5, hold_max_ms=1.0)


@pytest.mark.parametrize(
    ("alone_ms", "busy_ms", "margin_ms"), [(0.1, 0.2, 1.0), (0.7, 0.2, 1.2), (0.1, 0.8, 1.3), (0.1, 4.0, 1.5)]
)
def test_a_held_answer_is_let_go_by_the_worse_lateness_between_the_bounds_of_the_settings(
    alone_ms: float, busy_ms: float, margin_ms: float
) -> None:
    assert let_go_ms(wakes(alone_ms, busy_ms), MARGINS) == pytest.approx(margin_ms)


def test_epsilon_is_the_worse_of_alone_and_busy() -> None:
    assert epsilon_ms(wakes(0.3, 0.2)) == 0.3
    assert epsilon_ms(wakes(0.1, 0.2)) == 0.2


def test_what_is_left_for_work_is_the_deadline_without_guard_and_lateness() -> None:
    made = promise(wakes(0.1, 0.2), MARGINS, 10.0, ())
    assert made.possible
    assert made.left_ms == pytest.approx(9.0)
    assert promise(wakes(0.1, 3.0), MARGINS, 10.0, ()).left_ms == pytest.approx(6.5)


def test_wake_ups_later_than_the_deadline_make_it_impossible_and_say_so() -> None:
    made = promise(wakes(0.1, 12.0), MARGINS, 10.0, ())
    assert not made.possible
    assert made.left_ms == 0
    assert any("CANNOT BE KEPT" in sentence for sentence in sentences(made, MARGINS))
    assert promise(wakes(0.1, 12.0), MARGINS, 50.0, ()).possible


def test_a_finding_that_stops_makes_it_impossible_and_names_itself() -> None:
    harmless = Finding("G", "swap", "used", "bad", "free it")
    fatal = Finding("G", "provider", "is not there", "bad", "install it", stops=True)
    assert promise(wakes(), MARGINS, 10.0, [harmless]).possible
    made = promise(wakes(), MARGINS, 10.0, [harmless, fatal])
    assert made.because == ("provider: is not there",)


def test_a_margin_that_is_too_small_for_the_host_is_told_with_what_to_do() -> None:
    said = " ".join(sentences(promise(wakes(0.1, 1.8), MARGINS, 10.0, ()), MARGINS))
    assert "hold_max_ms = 1" in said
    assert "raise it to 1.8" in said
    hopeless = " ".join(sentences(promise(wakes(0.1, 8.0), MARGINS, 10.0, ()), MARGINS))
    assert "raise it" not in hopeless
    assert "hold_max_ms" not in " ".join(sentences(promise(wakes(), MARGINS, 10.0, ()), MARGINS))


def test_the_end_names_the_margin_and_epsilon() -> None:
    first, second = sentences(promise(wakes(0.1, 0.7), MARGINS, 10.0, ()), MARGINS)
    assert "0.70 ms" in first
    assert "1.20 ms before the deadline" in second
