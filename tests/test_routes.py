"""Ways through the cloud over a pair in memory: budgets of bytes, padding, stalls and slow returns."""

from __future__ import annotations

from itertools import pairwise

from plans import make_input, make_plan
from test_pair import TWO, pair_of

from hil.pair import MS, Pair
from shared.plan import Route
from shared.request import Answer
from shared.settings import Link

ONE = TWO[:1]


def asked(pair: Pair, many: int, period_ms: float = 33.0, deadline_ms: float = 10.0, **fields: object) -> list[Answer]:
    """So many requests, one in each period; their answers."""
    sequences: list[int] = []
    for _ in range(many):
        sequences.append(pair.ask(make_input(), deadline_ms, **fields))
        pair.run(period_ms)
    return [pair.answer(sequence) for sequence in sequences]


def test_a_stream_that_has_spent_its_bytes_is_answered_by_the_device_and_others_by_the_cloud() -> None:
    """A request and its answer weigh 600 bytes; a minute's budget is 10 of them."""
    pair = pair_of(nodes=ONE, link=Link(budget_mb_per_hour=0.36))
    first = asked(pair, 60, stream=1)
    by_cloud = sum(answer.source == "cloud" for answer in first)
    assert 10 <= by_cloud <= 11
    assert [answer.source for answer in asked(pair, 5, stream=2)] == ["cloud"] * 5
    pair.run(60_000)
    later = asked(pair, 60, stream=1)
    assert sum(answer.source == "cloud" for answer in later) in (10, 11)


def test_without_a_budget_there_is_no_limit() -> None:
    assert {answer.source for answer in asked(pair_of(nodes=ONE), 60, stream=1)} == {"cloud"}


def test_a_link_that_has_become_slow_during_a_pause_is_found_out_by_padding_before_the_next_request() -> None:
    """A byte takes 20 times as long as before: padding tells that, the probes, which are small, do not."""
    typical_ms: dict[float, float] = {}
    for rate in (0.0, 64.0):
        pair = pair_of(
            nodes=ONE, plan=make_plan(routes=(Route(0, "raw", 1.0, 20_000, 200),)), link=Link(warm_kb_per_s=rate)
        )
        asked(pair, 20)
        pair.ways["a"].per_byte_ns = 800
        pair.run(8_000)
        typical_ms[rate] = pair.broker.nodes.by_name["a"].paths[0].estimate.network_ns(20_000) / MS
    assert typical_ms[64.0] > 10
    assert typical_ms[0.0] < 6


def test_a_stalled_link_costs_no_answer_and_is_used_again_soon_after() -> None:
    pair = pair_of(nodes=ONE)
    asked(pair, 20)
    pair.stall("a")
    during = asked(pair, 10)
    assert {answer.source for answer in during} == {"edge"}
    pair.resume("a")
    after = asked(pair, 30)
    assert [answer.source for answer in after[-5:]] == ["cloud"] * 5


def test_requests_do_not_change_back_and_forth_between_equal_nodes() -> None:
    pair = pair_of()
    nodes = [answer.node for answer in asked(pair, 60)]
    changes = sum(a != b for a, b in pairwise(nodes))
    assert changes <= 1
