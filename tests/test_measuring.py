"""A running process is measured while it is idle, and only if it may be: work stops the measurement at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from shared.measuring import (
    HELD_FACTOR,
    LOADING_NS,
    MOST_S,
    QUIET_NS,
    SILENT_NS,
    Begin,
    Broke,
    End,
    Go,
    Hold,
    Measuring,
    Progress,
    Result,
    Say,
    Started,
    Step,
    Told,
)
from shared.wire.messages import PROTOCOL, Measure, Measured

CPU = "CPUExecutionProvider"
SECOND_NS = 1_000_000_000
CONTRACT, PLAN = make_plan()


def wish(number: int = 1, model: str = PLAN.model, **changes: object) -> Measure:
    fields = {"batches": (1,), "cadence_hz": 30.0, "seconds": 20.0, "protocol": PROTOCOL} | changes
    return Measure(number=number, model=model, **fields)


def measuring(provider: str = CPU, most_bytes: int = 100, forbidden: str = "") -> Measuring:
    return Measuring({CONTRACT: PLAN}, provider, most_bytes, forbidden)


def running(provider: str = CPU) -> Measuring:
    """One that has begun at time 0, its child running."""
    made = measuring(provider)
    made.asked("a", wish(), 0)
    made.told(Started(), False, 0)
    return made


def said(steps: Sequence[Step]) -> list[Measured]:
    return [step.message for step in steps if isinstance(step, Say)]


def test_a_wish_begins_the_child_and_is_told_how_it_goes() -> None:
    made = measuring()
    begin, word = made.asked("a", wish(batches=(1, 2)), 0)
    assert begin == Begin(CONTRACT, (1, 2), 30.0, 20.0)
    assert word == Say("a", Measured(1, "waiting"))
    assert made.told(Started(), False, 5) == []
    assert made.told(Progress(0.25), False, 6) == []
    assert said(made.asked("a", wish(batches=(1, 2)), 7)) == [Measured(1, "running", 0.25)]
    assert made.active


def test_without_batch_sizes_those_that_the_plan_allows_are_taken() -> None:
    begin = measuring().asked("a", wish(batches=()), 0)[0]
    assert isinstance(begin, Begin)
    assert begin.batches == tuple(batch for batch in (1, 2, 4) if batch <= PLAN.max_batch)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (wish(protocol=PROTOCOL + 1), "protocol"),
        (wish(model="other"), f"no plan of this model is served, digest other, only {PLAN.name}"),
        (wish(batches=(0,)), "batch 0: expected"),
        (wish(batches=(1, 1)), "batch 1: expected"),
        (wish(batches=tuple(range(1, 10))), "at most 8"),
        (wish(cadence_hz=0.0), "cadence 0 Hz: expected"),
        (wish(cadence_hz=math.nan), "cadence nan Hz: expected"),
        (wish(seconds=MOST_S + 1), "expected 0 to 600"),
        (wish(seconds=math.inf), "seconds inf: expected"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_words(asked: Measure, words: str) -> None:
    made = measuring()
    (word,) = said(made.asked("a", asked, 0))
    assert word.state == "refused"
    assert words in word.detail
    assert not made.active


def test_a_process_that_may_not_be_measured_says_why() -> None:
    made = measuring(forbidden="node.allow_profile is false")
    assert said(made.asked("a", wish(), 0)) == [Measured(1, "refused", detail="node.allow_profile is false")]
    assert not made.active


def test_one_at_a_time_is_measured() -> None:
    made = running()
    (word,) = said(made.asked("b", wish(), 1))
    assert (word.state, "somebody else" in word.detail) == ("refused", True)
    (word,) = said(made.asked("a", wish(2), 1))
    assert word.state == "refused"
    assert made.active


def test_work_stops_the_child_once_and_its_end_lets_it_go_on_once() -> None:
    made = running()
    assert made.look(True, 1) == [Hold()]
    assert made.look(True, 2) == []
    assert said(made.asked("a", wish(), 3)) == [Measured(1, "waiting")]
    assert made.look(False, 4) == [Go()]
    assert made.look(False, 5) == []


def test_a_child_that_comes_up_while_there_is_work_is_stopped_at_once() -> None:
    made = measuring()
    made.asked("a", wish(), 0)
    assert made.look(True, 1) == []  # there is nobody yet to be stopped
    assert made.told(Started(), True, 2) == [Hold()]


def test_a_device_that_goes_on_by_itself_must_have_been_quiet_for_a_while() -> None:
    made = running("CUDAExecutionProvider")
    assert made.look(True, SECOND_NS) == [Hold()]
    assert made.look(False, SECOND_NS + 1) == []
    assert made.look(False, SECOND_NS + QUIET_NS - 1) == []
    assert made.look(False, SECOND_NS + QUIET_NS) == [Go()]


def test_work_from_before_counts_for_such_a_device_too() -> None:
    made = measuring("CUDAExecutionProvider")
    made.look(True, 0)
    made.asked("a", wish(), 1)
    assert made.told(Started(), False, 2) == [Hold()]
    assert made.look(False, QUIET_NS) == [Go()]


def test_who_says_nothing_any_more_is_forgotten_with_the_child() -> None:
    made = running()
    made.asked("a", wish(), SECOND_NS)
    assert made.look(False, SECOND_NS + SILENT_NS) == []
    assert made.look(False, SECOND_NS + SILENT_NS + 1) == [End()]
    assert not made.active
    assert isinstance(made.asked("a", wish(), 2 * SILENT_NS)[0], Begin)


def test_who_says_goodbye_is_forgotten_at_once_and_nobody_elses_goodbye_counts() -> None:
    made = running()
    assert made.left("b") == []
    assert made.left("a") == [End()]
    assert not made.active
    assert made.left("a") == []


def test_a_process_that_always_has_work_gives_up_in_the_end() -> None:
    made = running()
    end_ns = LOADING_NS + HELD_FACTOR * 20 * SECOND_NS
    for now in range(0, end_ns + 1, 5 * SECOND_NS):
        made.asked("a", wish(), now)
        assert End() not in made.look(True, now)
    made.asked("a", wish(), end_ns)
    steps = made.look(True, end_ns + 1)
    assert steps[0] == End()
    (word,) = said(steps)
    assert (word.state, "too much to do" in word.detail) == ("refused", True)


def test_what_was_measured_is_said_once() -> None:
    made = running()
    steps = made.told(Result(b"times"), False, 9)
    assert steps == [End(), Say("a", Measured(1, "done", 1.0), b"times")]
    assert made.asked("a", wish(), 10) == []  # it crossed the last word
    assert made.told(Progress(0.5), False, 11) == []
    assert isinstance(made.asked("a", wish(2), 12)[0], Begin)


@pytest.mark.parametrize(
    ("told", "words"), [(Broke("the bundle is gone"), "the bundle is gone"), (Result(bytes(101)), "101 bytes")]
)
def test_a_child_of_which_nothing_comes_is_a_refusal(told: Told, words: str) -> None:
    made = running()
    steps = made.told(told, False, 9)
    assert steps[0] == End()
    (word,) = said(steps)
    assert word.state == "refused"
    assert words in word.detail
    assert not made.active


events = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(["a", "b"]), st.integers(1, 3)),
    st.tuples(st.just("look"), st.booleans(), st.just(0)),
    st.tuples(st.just("told"), st.sampled_from([Started(), Progress(0.5), Result(b"x"), Broke("no")]), st.booleans()),
)


@given(st.lists(st.tuples(events, st.integers(0, 12 * SECOND_NS)), max_size=60), st.sampled_from([CPU, "CUDA"]))
def test_a_child_never_runs_on_beside_work_and_each_is_ended_once(story: list[tuple[Any, int]], provider: str) -> None:
    made = measuring(provider)
    now, children, there, held = 0, 0, False, False
    for (kind, first, second), later in story:
        now += later
        busy = first if kind == "look" else second if kind == "told" else None
        if kind == "ask":
            steps = made.asked(first, wish(second), now)
        elif kind == "look":
            steps = made.look(first, now)
        else:
            there = there or (children > 0 and isinstance(first, Started))
            steps = made.told(first, second, now)
        for step in steps:
            match step:
                case Begin():
                    children, there, held = children + 1, False, False
                case End():
                    children, there = children - 1, False
                case Hold():
                    assert there
                    assert not held
                    held = True
                case Go():
                    assert held
                    assert not busy
                    held = False
                case _:
                    pass
        assert children == made.active
        assert not (busy and there and not held)
