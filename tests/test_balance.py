"""Which way through the cloud a request takes, by hand-made candidates."""

from __future__ import annotations

from edge.balance import NOT_INSURED, Candidate, Insured, choose, explore
from edge.nodes import MS, Node, Sent
from shared.plan import Route
from shared.scheduler import LeastPredictedFinish
from shared.settings import Link

A, B = Node("a", Link()), Node("b", Link())
RAW = Route(0, "raw", 1.0, 1000, 100)
JPEG = Route(0, "jpeg90", 0.97, 100, 100)
DUE = 9 * MS


def way(route: Route, node: Node, typical_ms: float, sure_ms: float | None = None) -> Candidate:
    sure = typical_ms if sure_ms is None else sure_ms
    return Candidate(route, 0, node, int(typical_ms * MS), int(sure * MS), 0, 1 * MS, 1100)


def insured(agreement: float, finish_ms: float = 5.0, *, promised: bool = True) -> Insured:
    return Insured(agreement, int(finish_ms * MS), promised)


def test_among_sure_ways_the_highest_agreement_wins_then_the_node_that_is_soonest() -> None:
    ways = [way(JPEG, A, 4), way(RAW, A, 8), way(RAW, B, 7)]
    assert choose(ways, insured(0.9), DUE, LeastPredictedFinish()) is ways[2]


def test_a_way_that_is_surely_on_time_is_taken_before_a_better_one_that_is_only_likely_to_be() -> None:
    ways = [way(RAW, A, 8, sure_ms=11), way(JPEG, B, 6, sure_ms=8)]
    assert choose(ways, insured(0.9), DUE, LeastPredictedFinish()) is ways[1]


def test_where_none_is_sure_the_soonest_is_taken() -> None:
    ways = [way(RAW, A, 8, sure_ms=11), way(JPEG, B, 8.5, sure_ms=12)]
    assert choose(ways, insured(0.9), DUE, LeastPredictedFinish()) is ways[0]


def test_a_way_that_is_late_already_in_the_typical_case_is_not_taken() -> None:
    assert choose([way(RAW, A, 9.1)], insured(0.9), DUE, LeastPredictedFinish()) is None


def test_the_cloud_is_not_asked_for_what_the_device_does_as_well_and_sooner() -> None:
    assert choose([way(RAW, A, 6)], insured(1.0, finish_ms=5), DUE, LeastPredictedFinish()) is None
    assert choose([way(JPEG, A, 4)], insured(1.0, finish_ms=5), DUE, LeastPredictedFinish()) is None
    assert choose([way(RAW, A, 4)], insured(1.0, finish_ms=5), DUE, LeastPredictedFinish()) is not None


def test_without_a_promise_any_way_is_worth_it() -> None:
    assert choose([way(JPEG, A, 6)], insured(1.0, promised=False), DUE, LeastPredictedFinish()) is not None
    assert choose([way(JPEG, A, 6)], NOT_INSURED, DUE, LeastPredictedFinish()) is not None


def test_exploring_is_for_the_insured_and_comes_with_growing_pauses() -> None:
    node = Node("x", Link())
    late = [way(RAW, node, 20)]
    assert explore(late, insured(0.9, promised=False), 0, 250 * MS) is None
    assert explore(late, insured(1.0), 0, 250 * MS) is None, "nothing would be bettered"
    tried = [at for at in range(0, 5000, 50) if explore(late, insured(0.9), at * MS, 250 * MS) is not None]
    assert tried == [0, 250, 750, 1750, 2750, 3750, 4750]


def test_an_answer_on_time_makes_the_next_exploration_possible_at_once() -> None:
    node = Node("x", Link())
    late = [way(RAW, node, 20)]
    for at in (0, 250, 750):
        assert explore(late, insured(0.9), at * MS, 250 * MS) is not None
    node.answered(Sent(760 * MS, 770 * MS, 775 * MS, 1100, True), 1 * MS, 770 * MS)
    assert explore(late, insured(0.9), 770 * MS, 250 * MS) is not None
    assert explore(late, insured(0.9), 1020 * MS, 250 * MS) is not None
