"""Who wins under the conditions of the study of when to split, from tables that are known."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.splits.answers import (
    LEAST_WORK,
    MAIN,
    PLACES,
    PRIVATE,
    RULES,
    Place,
    Rule,
    answer_at,
    answers_to,
    changes,
    time_us,
    wins,
)
from hil.splits.findings import (
    FORMAT,
    CutPlace,
    Finding,
    Findings,
    Machine,
    Way,
    decode_findings,
    encode_findings,
)
from hil.splits.words import Outcome, not_to_use, overall, places_in_words, verdict
from partitioner.costs.cost import Kind
from shared.errors import UserError


def way(kind: Kind, coding: str = "", cut: str = "", **given: float | bool) -> Way:
    """A way that takes no time but what is given."""
    told = {
        "head_us": 0.0,
        "encode_us": 0.0,
        "decode_us": 0.0,
        "tail_us": 0.0,
        "bytes_up": 0,
        "bytes_down": 0,
        "agreement": 1.0,
        "exposes": kind == "input",
        **given,
    }
    return Way(kind=kind, cut=cut, coding=coding, **told)


DEVICE = way("device", head_us=10_000)
RAW = way("input", "raw", "input", tail_us=10_000, bytes_up=300_000)
CODED = way("input", "jpeg90", "input", encode_us=500, decode_us=500, tail_us=10_000, bytes_up=30_000, agreement=0.96)
EARLY = way("split", "int8", "early", head_us=100, tail_us=9_900, bytes_up=20_000, exposes=True)
MIDDLE = way("split", "int4", "middle", head_us=2_000, tail_us=8_000, bytes_up=5_000, agreement=0.92)
LOSSLESS = way("split", "raw", "middle", head_us=2_000, tail_us=8_000, bytes_up=40_000)
WAYS = (DEVICE, RAW, CODED, EARLY, MIDDLE, LOSSLESS)


def finding(*ways: Way, name: str = "yolox") -> Finding:
    cuts = dict.fromkeys(w.cut for w in ways if w.kind == "split")
    return Finding(
        name=name,
        metric="exact",
        rows_fitted=32,
        rows_judged=96,
        cuts_found=12,
        several=1,
        cuts=tuple(CutPlace(cut, 1, 0.2) for cut in cuts),
        ways=ways,
        doubts=(),
        runs=48,
        unsteady=0.02,
        disturbed=0.0,
        machine=Machine(2, "a processor", "3.11", "1.32"),
        date="2026-12-01",
        seconds=60.0,
    )


def test_every_condition_that_was_asked_for_is_there_once() -> None:
    asked = itertools.product((4, 8), (20, 50, 200, 1000), (2, 5, 20))
    assert [(p.ratio, p.rate_mbit, p.rtt_ms) for p in PLACES] == list(asked)
    assert [(rule.floor, rule.private) for rule in RULES] == [(0.9, False), (0.95, False), (0.99, False), (0.95, True)]
    for rule in RULES:
        assert [answer.place for answer in answers_to(finding(*WAYS), rule)] == list(PLACES)


def test_a_time_is_the_slowed_device_the_bytes_the_round_trip_and_the_cloud() -> None:
    place = Place(ratio=4.0, rate_mbit=20.0, rtt_ms=5.0)
    assert time_us(DEVICE, place) == 40_000
    assert time_us(RAW, place) == pytest.approx(300_000 * 8 / 20 + 5_000 + 10_000)
    assert time_us(CODED, place) == pytest.approx(4 * 500 + 30_000 * 8 / 20 + 5_000 + 500 + 10_000)


@pytest.mark.parametrize(
    ("place", "rule", "winner"),
    [
        (Place(4.0, 20.0, 2.0), Rule(0.90), MIDDLE),  # 8 + 2 + 2 + 8 = 20 ms, the early one 0.4 + 8 + 2 + 9.9 = 20.3 ms
        (Place(4.0, 20.0, 2.0), Rule(0.95), EARLY),
        (Place(4.0, 20.0, 2.0), PRIVATE, LOSSLESS),  # 8 + 16 + 2 + 8 = 34 ms
        (Place(4.0, 20.0, 20.0), PRIVATE, DEVICE),  # 40 ms against 52 ms
        (Place(8.0, 1000.0, 2.0), Rule(0.99), EARLY),
    ],
)
def test_the_quickest_of_the_ways_that_are_allowed_wins(place: Place, rule: Rule, winner: Way) -> None:
    answer = answer_at(WAYS, place, rule)
    assert answer.entries[answer.winner].way == winner
    assert answer.winner == winner.road


def test_a_coded_input_below_the_floor_is_no_way_at_all() -> None:
    assert answer_at(WAYS, PLACES[0], Rule(0.95)).entries["coded"].way == CODED
    assert "coded" not in answer_at(WAYS, PLACES[0], Rule(0.99)).entries


def test_a_private_input_leaves_neither_the_input_nor_a_cut_that_shows_it() -> None:
    answer = answer_at(WAYS, PLACES[0], PRIVATE)
    assert set(answer.entries) == {"device", "split"}
    assert answer.entries["split"].way == LOSSLESS
    assert 0.0 < LEAST_WORK < 1.0


def test_the_lead_is_over_the_next_road_and_a_small_one_is_called_close() -> None:
    device = way("device", head_us=10_000)
    near = way("input", "raw", "input", tail_us=39_000)
    answer = answer_at((device, near), Place(4.0, 1000.0, 0.0), MAIN)
    assert answer.winner == "raw"
    assert answer.lead == pytest.approx(40_000 / 39_000)
    assert answer.close
    alone = answer_at((device,), PLACES[0], MAIN)
    assert math.isinf(alone.lead)
    assert not alone.close


def test_what_another_rule_changes_is_told_by_road_and_place() -> None:
    main, private = (answers_to(finding(*WAYS), rule) for rule in (MAIN, PRIVATE))
    found = changes(main, private)
    differing = [a.place for a, b in zip(main, private, strict=True) if a.winner != b.winner]
    assert sorted(p.rate_mbit for change in found for p in change.places) == sorted(p.rate_mbit for p in differing)
    assert changes(main, main) == ()


times = st.floats(0.0, 1e5)
some_way = st.builds(
    way,
    st.just("split"),
    st.just("int8"),
    st.sampled_from(["a", "b"]),
    head_us=times,
    encode_us=times,
    decode_us=times,
    tail_us=times,
    bytes_up=st.integers(0, 10**6),
    agreement=st.floats(0.8, 1.0),
    exposes=st.booleans(),
)


@given(st.lists(some_way, max_size=6), st.sampled_from(PLACES), st.sampled_from(RULES))
def test_no_allowed_way_is_quicker_than_the_winner(ways: list[Way], place: Place, rule: Rule) -> None:
    everything = (DEVICE, *ways)
    answer = answer_at(everything, place, rule)
    best = min(time_us(w, place) for w in everything if rule.allows(w))
    assert answer.entries[answer.winner].time_us == best


@given(st.lists(some_way, max_size=6))
def test_every_condition_has_one_winner_and_a_stricter_floor_is_never_quicker(ways: list[Way]) -> None:
    known = finding(DEVICE, *ways)
    for rule in RULES:
        assert sum(wins(answers_to(known, rule)).values()) == len(PLACES)
    for low, high in itertools.pairwise(Rule(floor) for floor in (0.9, 0.95, 0.99)):
        for loose, strict in zip(answers_to(known, low), answers_to(known, high), strict=True):
            assert loose.entries[loose.winner].time_us <= strict.entries[strict.winner].time_us


# --- what is said of it --------------------------------------------------------------------------------------------------


def test_where_the_device_is_quickest_everywhere_nothing_of_headtail_is_needed() -> None:
    slow = way("input", "raw", "input", tail_us=10**6)
    outcome = Outcome.of("Tiny", finding(way("device", head_us=10), slow))
    assert verdict(outcome).startswith("The device wins everywhere; a split never does.")
    told = not_to_use([outcome])
    assert told[0].startswith("**Tiny**: the device alone was the quickest everywhere.")
    assert "at ×4 20/2, 20/5" in told[-1]


def test_where_the_input_is_quickest_everywhere_an_offload_server_is_enough() -> None:
    outcome = Outcome.of("Words", finding(way("device", head_us=10**6), way("input", "raw", "input", tail_us=100)))
    (told,) = not_to_use([outcome])
    assert told.startswith("**Words**: sending the input was the quickest everywhere. A plain offload server does that")
    assert "none of the cuts that were measured is allowed" in verdict(outcome)


def test_where_a_split_wins_it_is_said_where_and_by_how_much() -> None:
    split = way("split", "int8", "middle", head_us=1_000, tail_us=1_000)
    outcome = Outcome.of("Camera", finding(way("device", head_us=40_000), split))
    assert outcome.main_wins["split"] == len(PLACES)
    assert "a split wins everywhere" in verdict(outcome).lower()
    assert not_to_use([outcome]) == []
    assert "a split in 24" in overall([outcome])
    assert "in effect a coding" not in verdict(outcome)


def test_a_cut_right_behind_the_input_is_called_a_coding_of_it() -> None:
    early = way("split", "raw", "quantised", head_us=10, tail_us=1_000, exposes=True)
    outcome = Outcome.of("Speech", finding(way("device", head_us=40_000), early))
    assert "All of these cuts have less than 5% of the model's operations before it" in verdict(outcome)
    assert "a split won only right behind the input" in not_to_use([outcome])[0]
    assert "In 24 of those with a split, the cut has less than 5%" in overall([outcome])


def test_a_split_that_wins_at_another_agreement_alone_is_told() -> None:
    slow, coded = way("device", head_us=10**6), way("input", "jpeg90", "input", tail_us=100, agreement=0.96)
    outcome = Outcome.of("Strict", finding(slow, coded, way("split", "int8", "middle", head_us=1_000, tail_us=1_000)))
    assert "At other agreements a split wins in 24 of 24 at 0.99." in verdict(outcome)
    assert "a split won in 0 at 0.90 and in 24 at 0.99" in overall([outcome])
    assert "For **Strict** this holds at 0.95" in not_to_use([outcome])[-1]


def test_places_are_written_by_ratio_as_rate_over_round_trip() -> None:
    assert places_in_words([PLACES[0], PLACES[1], PLACES[-1]]) == "×4 20/2, 20/5; ×8 1000/20"


# --- the file ------------------------------------------------------------------------------------------------------------


def test_findings_come_back_as_they_were_written_and_a_model_is_replaced_by_its_name() -> None:
    findings = Findings(FORMAT, (finding(*WAYS), finding(*WAYS, name="minilm")))
    assert decode_findings(encode_findings(findings), "here") == findings
    anew = finding(DEVICE, RAW)
    assert findings.with_model(anew, ("minilm", "yolox")).models == (findings.models[1], anew)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"nonsense", "no findings of this study"),
        (b'{"format": 1, "models": [{"name": "yolox"}]}', "no findings of this study"),
        (encode_findings(Findings(FORMAT + 1, ())), "format 2, this version reads format 1"),
        (encode_findings(Findings(FORMAT, (finding(RAW),))), "yolox has no way on the device"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(text: bytes, said: str) -> None:
    with pytest.raises(UserError, match=f"^here: .*{said}"):
        decode_findings(text, "here")
