"""Which way through the cloud a request takes, by hand-made candidates."""

from __future__ import annotations

import msgspec

from edge.balance import NOT_INSURED, Candidate, Insured, Usual, choose, explore, no_less_likely
from edge.nodes import MS, Node
from edge.paths import Path, Sent
from shared.placement import LeastPredictedFinish
from shared.plan import Route
from shared.settings import Link

A, B = Node("a", Link()).paths[0], Node("b", Link()).paths[0]
RAW = Route(0, "raw", 1.0, 1000, 100)
JPEG = Route(0, "jpeg90", 0.97, 100, 100)


def way(route: Route, path: Path, typical_ms: float, chance: float = 0.99, beside: float = 1.0) -> Candidate:
    return Candidate(
        route=route,
        index=(RAW, JPEG).index(route),
        path=path,
        chance=chance,
        typical_ns=int(typical_ms * MS),
        sure_ns=int(typical_ms * MS),
        head_ns=0,
        network_ns=1 * MS,
        node_ns=1 * MS,
        nbytes=route.bytes_up + route.bytes_down,
        beside=beside,
    )


def insured(agreement: float, finish_ms: float = 5.0, *, promised: bool = True) -> Insured:
    return Insured(agreement, int(finish_ms * MS), promised)


def take(ways: list[Candidate], device: Insured, usual: Usual | None = None) -> Candidate | None:
    return choose(ways, device, 0, LeastPredictedFinish(), 0.1, usual)


def test_among_ways_that_are_sure_the_highest_agreement_wins_then_the_node_that_is_soonest() -> None:
    ways = [way(JPEG, A, 4), way(RAW, A, 8), way(RAW, B, 7)]
    assert take(ways, insured(0.9)) is ways[2]


def test_while_insured_a_way_counts_by_what_it_can_be_expected_to_add() -> None:
    likely = [way(RAW, A, 8, chance=0.15), way(JPEG, B, 6)]
    assert take(likely, insured(0.9)) is likely[0], "0.15 of 0.1 is a fifth of all of 0.07, and it agrees more"
    unlikely = [way(RAW, A, 8, chance=0.13), way(JPEG, B, 6)]
    assert take(unlikely, insured(0.9)) is unlikely[1]


def test_while_insured_a_way_that_agrees_as_much_is_not_taken_where_it_is_much_less_likely() -> None:
    ways = [way(RAW, A, 6, chance=0.6), way(RAW, B, 8)]
    assert take(ways, insured(0.9)) is ways[1]
    near = [way(RAW, A, 6, chance=0.8), way(RAW, B, 8)]
    assert take(near, insured(0.9)) is near[0], "about as likely, and sooner"


def test_a_way_that_costs_the_device_its_better_answer_must_make_up_for_that() -> None:
    device = insured(0.8)
    assert take([way(RAW, A, 8, chance=0.5, beside=0.8)], device) is not None
    assert take([way(RAW, A, 8, chance=0.5, beside=0.55)], device) is None, "half of 0.2 for half of 0.25"
    assert take([way(RAW, A, 8, chance=0.6, beside=0.55)], device) is not None
    light = msgspec.structs.replace(way(RAW, A, 8, chance=0.9, beside=0.5), nbytes=400)
    assert take([light, way(RAW, B, 8, chance=0.9)], device) is not light, "fewer bytes do not make up for it"
    same = way(RAW, A, 4, beside=0.9)
    assert take([same], insured(1.0, finish_ms=5)) is None


def test_exploring_leaves_the_device_its_answer_where_it_can() -> None:
    costly, free = way(JPEG, A, 9, beside=0.5), way(RAW, A, 12)
    assert explore([costly, free], insured(0.9), 0, 250 * MS) is free
    assert explore([costly], insured(0.9), 1000 * MS, 250 * MS) is costly


def test_a_way_is_no_less_likely_than_one_of_more_bytes_that_is_back_no_sooner() -> None:
    heavy, light = way(RAW, A, 8, chance=0.6), way(JPEG, A, 6, chance=0.2)
    assert [w.chance for w in no_less_likely([heavy, light])] == [0.6, 0.6]
    sooner = way(RAW, A, 5, chance=0.6)
    assert [w.chance for w in no_less_likely([sooner, light])] == [0.6, 0.2], "the heavy one needs less work elsewhere"
    assert no_less_likely([way(RAW, A, 8, chance=0.1), light])[1] is light


def test_without_a_promise_the_chance_of_an_answer_comes_before_its_agreement() -> None:
    ways = [way(RAW, A, 8, chance=0.8), way(JPEG, B, 6, chance=0.9)]
    assert take(ways, NOT_INSURED) is ways[1]
    near = [way(RAW, A, 8, chance=0.89), way(JPEG, B, 6, chance=0.9)]
    assert take(near, NOT_INSURED) is near[0], "as good as equal"


def test_a_way_that_has_no_chance_is_not_taken() -> None:
    assert take([way(RAW, A, 9.1, chance=0.05)], insured(0.9)) is None
    assert take([way(RAW, A, 9.1, chance=0.05)], NOT_INSURED) is None


def test_of_ways_that_agree_the_same_the_one_of_fewer_bytes_wins() -> None:
    lossless = msgspec.structs.replace(way(RAW, A, 8), nbytes=600, index=2)
    large = way(RAW, B, 5)
    assert take([large, lossless], insured(0.9)) is lossless


def test_a_way_of_twice_the_bytes_must_be_worth_twice_as_much() -> None:
    light = msgspec.structs.replace(way(RAW, A, 8, chance=0.5), nbytes=400)
    for chance, heavy_wins in ((0.9, False), (1.0, False), (0.5, False)):
        heavy = way(RAW, B, 8, chance=chance)
        assert (take([light, heavy], insured(0.9)) is heavy) == heavy_wins
    unlikely = msgspec.structs.replace(light, chance=0.3)
    heavy = way(RAW, B, 8, chance=0.9)
    assert take([unlikely, heavy], insured(0.9)) is heavy


def test_the_way_that_was_taken_last_is_kept_where_it_is_about_as_good() -> None:
    usual = Usual(0, A.data)
    ways = [way(RAW, A, 8, chance=0.97), way(RAW, B, 7.5)]
    assert take(ways, insured(0.9)) is ways[1]
    assert take(ways, insured(0.9), usual) is ways[0]
    sooner = [way(RAW, A, 8), way(RAW, B, 5)]
    assert take(sooner, insured(0.9), usual) is sooner[1]
    surer = [way(RAW, A, 8, chance=0.7), way(RAW, B, 8)]
    assert take(surer, insured(0.9), usual) is surer[1]


def test_near_equal_ways_are_not_changed_back_and_forth() -> None:
    """Two nodes whose predictions wobble by 5 %: without the habit half of the requests would change the node."""
    changes = {True: 0, False: 0}
    for habit in changes:
        usual: Usual | None = None
        for step in range(200):
            wobble = 0.2 * (-1) ** step
            found = take([way(RAW, A, 8 + wobble), way(RAW, B, 8 - wobble)], insured(0.9), usual if habit else None)
            assert found is not None
            changes[habit] += usual is not None and usual.link != found.path.data
            usual = Usual(found.index, found.path.data)
    assert changes == {True: 0, False: 199}


def test_the_cloud_is_not_asked_for_what_the_device_does_as_well_and_sooner() -> None:
    assert take([way(RAW, A, 6)], insured(1.0, finish_ms=5)) is None
    assert take([way(JPEG, A, 4)], insured(1.0, finish_ms=5)) is None
    assert take([way(RAW, A, 4)], insured(1.0, finish_ms=5)) is not None
    assert take([way(RAW, A, 4, chance=0.4)], insured(1.0, finish_ms=5)) is None


def test_without_a_promise_any_way_is_worth_it() -> None:
    assert take([way(JPEG, A, 6)], insured(1.0, promised=False)) is not None
    assert take([way(JPEG, A, 6)], NOT_INSURED) is not None


def test_exploring_is_for_the_insured_and_comes_with_growing_pauses() -> None:
    path = Node("x", Link()).paths[0]
    late = [way(RAW, path, 20)]
    assert explore(late, insured(0.9, promised=False), 0, 250 * MS) is None
    assert explore(late, insured(1.0), 0, 250 * MS) is None, "nothing would be bettered"
    tried = [at for at in range(0, 5000, 50) if explore(late, insured(0.9), at * MS, 250 * MS) is not None]
    assert tried == [0, 250, 750, 1750, 2750, 3750, 4750]


def test_every_second_exploration_is_of_the_fewest_bytes() -> None:
    path = Node("x", Link()).paths[0]
    late = [way(RAW, path, 20), way(JPEG, path, 21)]
    found = [explore(late, insured(0.9), at * MS, 250 * MS) for at in (0, 250, 750, 1750)]
    assert [None if one is None else one.route for one in found] == [RAW, JPEG, RAW, JPEG]


def test_an_answer_on_time_makes_the_next_exploration_possible_at_once() -> None:
    path = Node("x", Link()).paths[0]
    late = [way(RAW, path, 20)]
    for at in (0, 250, 750):
        assert explore(late, insured(0.9), at * MS, 250 * MS) is not None
    path.answered(Sent(760 * MS, 770 * MS, 775 * MS, 1100, True), 1 * MS, 770 * MS)
    assert explore(late, insured(0.9), 770 * MS, 250 * MS) is not None
    assert explore(late, insured(0.9), 1020 * MS, 250 * MS) is not None
