"""Which callers lead a client's loop."""

from __future__ import annotations

from edge.leading import AT_ONCE_NS, SHARED_NS, Leading

NOW = 5 * SHARED_NS
ONE, OTHER = 11, 12


def test_the_first_caller_leads_and_one_that_asks_alone_does_however_soon_it_asks_again() -> None:
    leading = Leading()
    assert leading.may(NOW)
    leading.asked(ONE, NOW)
    for now in range(NOW + SHARED_NS, NOW + SHARED_NS + 10):
        leading.had(now)
        assert leading.may(now)
        leading.asked(ONE, now)


def test_who_asks_again_at_once_does_not_lead_while_another_asks_too() -> None:
    leading = Leading()
    leading.asked(ONE, NOW)
    leading.asked(OTHER, NOW + SHARED_NS)
    leading.asked(ONE, NOW + SHARED_NS)
    now = NOW + SHARED_NS + 1_000
    leading.had(now)
    assert not leading.may(now + AT_ONCE_NS - 1)
    assert leading.may(now + AT_ONCE_NS)
    leading.had(NOW + 2 * SHARED_NS)
    assert leading.may(NOW + 2 * SHARED_NS)
