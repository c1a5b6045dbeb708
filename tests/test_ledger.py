"""The ledger apart from the futures: what it calls lost, duplicated and wrong, and that planted faults show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from hil.ledger import Claim, Entry, Ledger, References, difference, distinct
from hil.plant import Plant, planted
from shared.request import EXACT, Answer, Fidelity, Missed, Outcome, Rejected, Superseded

MS = 1_000_000
FRAMES = 5
RUNG = Fidelity("rung", "small", 0.9)
JPEG = Fidelity("lossy", "jpeg-90", 0.99)


def value(frame: int, way: int) -> dict[str, np.ndarray]:
    return {"out": np.array([[frame * 10.0 + way, 1.0]], dtype=np.float32)}


REFERENCES: References = {
    Claim("c", "exact"): [value(frame, 0) for frame in range(FRAMES)],
    Claim("c", "rung", "small"): [value(frame, 1) for frame in range(FRAMES)],
    Claim("c", "lossy", "jpeg-90", 0): [value(frame, 2) for frame in range(FRAMES)],
    Claim("c", "lossy", "int8", 3): [value(frame, 3) for frame in range(FRAMES)],
}


def answer(
    frame: int, fidelity: Fidelity = EXACT, way: int = 0, cut: int | None = None, on_time: bool = True
) -> Answer:
    return Answer(
        outputs=value(frame, way),
        source="edge" if cut is None else "cloud",
        node=None if cut is None else "n",
        rung="small" if fidelity.kind == "rung" else "whole",
        cut=cut,
        fidelity=fidelity,
        contract="c",
        on_time=on_time,
    )


def account(*outcomes: Outcome) -> list[Entry]:
    """The entries of one request for each outcome, for the frames in order."""
    ledger = Ledger()
    for ticket, outcome in enumerate(outcomes):
        ledger.asked(ticket, ticket % FRAMES, ticket * MS)
        ledger.delivered(ticket, outcome, ticket * MS + 5000)
    return ledger.close(REFERENCES)


def test_each_outcome_is_an_entry_of_its_kind() -> None:
    entries = account(
        answer(0), answer(1, on_time=False), Missed("uplink"), Rejected("overload"), Superseded()
    )  # fmt: skip
    assert [entry.kind for entry in entries] == ["on_time", "late", "missed", "rejected", "superseded"]
    assert [entry.detail for entry in entries] == ["", "", "uplink", "overload", ""]
    assert {entry.latency_ns for entry in entries} == {5000}
    assert not any(entry.why_wrong or entry.duplicates for entry in entries)


@pytest.mark.parametrize(
    ("fidelity", "way", "cut"),
    [
        (EXACT, 0, None),
        (EXACT, 0, 0),
        (RUNG, 1, None),
        (JPEG, 2, 0),
        (Fidelity("lossy", "int8", 0.9), 3, 3),
    ],
)
def test_an_answer_is_held_against_exactly_what_it_claims(fidelity: Fidelity, way: int, cut: int | None) -> None:
    assert account(answer(0, fidelity, way, cut))[0].why_wrong == ""
    assert account(answer(0, fidelity, way + 1, cut))[0].why_wrong == "out is off by 1"


def test_an_answer_for_another_frame_is_wrong() -> None:
    assert account(answer(1))[0].why_wrong == "out is off by 10"


def test_the_tolerance_is_a_ten_thousandth() -> None:
    near, far = np.float64(9e-5), np.float64(1.1e-4)
    assert account(replace(answer(0), outputs={"out": value(0, 0)["out"].astype(np.float64) + near}))[0].why_wrong == ""
    assert account(replace(answer(0), outputs={"out": value(0, 0)["out"].astype(np.float64) + far}))[0].why_wrong != ""


def test_a_claim_that_the_plan_does_not_have_is_wrong() -> None:
    assert "does not have" in account(answer(0, Fidelity("rung", "other", 0.9), 1))[0].why_wrong
    assert "does not have" in account(replace(answer(0), contract="other"))[0].why_wrong


def test_other_outputs_or_shapes_are_wrong() -> None:
    assert "outputs" in account(replace(answer(0), outputs={"other": value(0, 0)["out"]}))[0].why_wrong
    assert "instead of" in account(replace(answer(0), outputs={"out": value(0, 0)["out"][:, :1]}))[0].why_wrong


def test_what_was_not_delivered_is_lost_and_what_was_delivered_again_is_duplicated() -> None:
    ledger = Ledger()
    for ticket in range(3):
        ledger.asked(ticket, ticket, 0)
    ledger.delivered(0, answer(0), 1)
    ledger.delivered(0, answer(0), 2)
    ledger.delivered(2, answer(2), 3)
    entries = ledger.close(REFERENCES)
    assert [entry.kind for entry in entries] == ["on_time", "lost", "on_time"]
    assert [entry.duplicates for entry in entries] == [1, 0, 0]
    assert entries[0].latency_ns == 1


def test_a_request_whose_future_never_ends_is_lost_whatever_the_tap_has_seen() -> None:
    ledger = Ledger()
    ledger.asked(0, 0, 0)
    ledger.delivered(0, answer(0), 1)
    ledger.unresolved(0)
    assert [entry.kind for entry in ledger.close(REFERENCES)] == ["lost"]


def test_a_delivery_that_nobody_asked_for_shows() -> None:
    ledger = Ledger()
    ledger.delivered(7, answer(0), 1)
    assert [entry.duplicates for entry in ledger.close(REFERENCES)] == [1]


def test_not_a_number_equals_itself_and_nothing_else() -> None:
    nan, one, inf = np.array([np.nan]), np.array([1.0]), np.array([np.inf])
    assert difference(nan, nan) == 0
    assert difference(inf, inf) == 0
    assert difference(nan, one) == np.inf
    assert difference(one, inf) == np.inf


def test_of_frames_with_the_same_answer_by_any_claim_one_is_kept() -> None:
    assert distinct(REFERENCES) == list(range(FRAMES))
    one = {**REFERENCES, Claim("c", "rung", "small"): [value(min(frame, 3), 1) for frame in range(FRAMES)]}
    assert distinct(one) == [0, 1, 2, 3]
    assert distinct({}) == []


def planted_account(plant: Plant | None) -> list[Entry]:
    ledger = Ledger()
    tap: Callable[[int, Outcome, int], None] = planted(ledger.delivered, plant)
    for ticket in range(40):
        ledger.asked(ticket, ticket % FRAMES, 0)
        tap(ticket, answer(ticket % FRAMES), ticket)
    return ledger.close(REFERENCES)


@pytest.mark.parametrize(
    ("plant", "lost", "duplicated", "wrong"),
    [(None, 0, 0, 0), ("duplicated", 0, 1, 0), ("swapped", 0, 0, 2), ("dropped", 1, 0, 0)],
)
def test_a_planted_fault_shows_as_what_it_is(plant: Plant | None, lost: int, duplicated: int, wrong: int) -> None:
    entries = planted_account(plant)
    assert len(entries) == 40
    assert sum(entry.kind == "lost" for entry in entries) == lost
    assert sum(entry.duplicates for entry in entries) == duplicated
    assert sum(bool(entry.why_wrong) for entry in entries) == wrong
