from __future__ import annotations

import math

import pytest

from partitioner.choose import choose_routes, choose_rungs, explain, rank, without_dominated
from partitioner.costs.cost import NOTHING, Candidate, Kind, Spread, predict
from partitioner.options import LinkGuess

LINK = LinkGuess(200.0, 2.0)
TEN_MS = 10_000_000


def way(
    kind: Kind,
    name: str,
    *,
    head: float = 0.0,
    tail: float = 0.0,
    up: int = 0,
    down: int = 0,
    agreement: float = 1.0,
    noise: float = 0.0,
) -> Candidate:
    return Candidate(
        kind=kind,
        cut="" if kind == "device" else name,
        coding="raw",
        rung=name if kind == "device" else "",
        head=Spread(head, head + noise),
        encode=NOTHING,
        decode=NOTHING,
        tail=Spread(tail, tail + noise),
        bytes_up=up,
        bytes_down=down,
        agreement=agreement,
        measured=True,
    )


def test_time_through_the_cloud_is_the_sum_of_its_parts() -> None:
    candidate = Candidate(
        "input",
        "input",
        "jpeg90",
        "",
        NOTHING,
        Spread(800, 800),
        Spread(200, 200),
        Spread(2300, 2300),
        25_000,
        2_500,
        1,
        True,
    )
    prediction = predict(candidate, LINK)
    # 25,000 bytes at 200 Mbit/s are 1,000 us, 2,500 are 100 us, and each way takes half of 2 ms
    assert prediction.uplink_us == pytest.approx(2000)
    assert prediction.downlink_us == pytest.approx(1100)
    assert prediction.edge_us == 800
    assert prediction.cloud_us == 2500
    assert prediction.total.p50_us == pytest.approx(800 + 2000 + 200 + 2300 + 1100)


def test_the_device_needs_no_link() -> None:
    prediction = predict(way("device", "whole", head=9000), LinkGuess(0.001, 1000))
    assert prediction.total.p50_us == 9000
    assert prediction.uplink_us == prediction.downlink_us == 0


def test_excesses_join_by_the_root_of_their_squares() -> None:
    candidate = way("split", "c", head=1000, tail=1000, noise=0)
    noisy = Candidate(
        "split", "c", "raw", "", Spread(1000, 1300), NOTHING, NOTHING, Spread(1000, 1400), 0, 0, 1.0, True
    )
    base = predict(candidate, LINK).total.p50_us
    assert predict(noisy, LINK).total.p99_us == pytest.approx(base + 500)


def test_a_slower_device_multiplies_the_work_and_not_the_noise() -> None:
    assert Spread(1000, 1500).slowed(4.0) == Spread(4000, 4500)


def test_on_time_comes_before_agreement_and_agreement_before_time() -> None:
    late_exact = way("device", "whole", head=12_000)
    timely_good = way("input", "input", tail=2000, agreement=0.98)
    timely_fast = way("device", "res-96", head=1000, agreement=0.8)
    order = rank([late_exact, timely_fast, timely_good], LINK, TEN_MS, 0.0)
    assert order == [timely_good, timely_fast, late_exact]


def test_late_by_p99_is_late() -> None:
    shaky = way("device", "whole", head=9_500, noise=1000)
    steady = way("device", "res", head=9_900, agreement=0.9)
    assert rank([shaky, steady], LINK, TEN_MS, 0.0)[0] == steady


def test_among_late_ways_the_fastest_wins() -> None:
    exact = way("device", "whole", head=40_000)
    rough = way("device", "res", head=20_000, agreement=0.5)
    assert rank([exact, rough], LINK, TEN_MS, 0.0)[0] == rough


def test_too_little_or_unmeasured_agreement_is_never_chosen() -> None:
    rough = way("device", "res", head=100, agreement=0.5)
    unknown = way("split", "c", agreement=math.nan)
    assert rank([rough, unknown], LINK, TEN_MS, 0.9) == []


def test_no_route_is_kept_where_the_device_always_wins() -> None:
    device = way("device", "whole", head=100)
    cloud = way("input", "input", tail=50, up=1000)
    assert choose_routes([device, cloud], LINK, TEN_MS, 0.0) == []


def test_routes_are_the_winners_of_the_stated_and_of_near_links() -> None:
    device = way("device", "whole", head=30_000)
    raw = way("input", "input", tail=2000, up=110_000, down=500)
    small = way("split", "c", head=4000, tail=1000, up=2_000, down=500, agreement=0.97)
    useless = way("split", "d", head=9000, tail=1500, up=400_000, down=500, agreement=0.97)
    routes = choose_routes([device, raw, small, useless], LINK, TEN_MS, 0.0)
    assert routes == [raw, small]
    assert choose_routes([device, raw, small, useless], LinkGuess(20.0, 2.0), TEN_MS, 0.0)[0] == small


def test_a_split_that_is_no_better_than_the_input_is_no_way() -> None:
    raw = way("input", "input", tail=5000, up=110_000, down=500)
    device = way("device", "whole", head=30_000)
    chance = way("split", "a", head=50, tail=4_900, up=110_000, down=500)
    smaller = way("split", "b", head=4000, tail=4000, up=50_000, down=500)
    less_cloud = way("split", "c", head=4000, tail=2000, up=110_000, down=500)
    assert without_dominated([raw, device, chance, smaller, less_cloud]) == [raw, device, smaller, less_cloud]


def test_a_split_that_agrees_more_than_the_coded_input_is_kept() -> None:
    rough = way("input", "input", tail=5000, up=10_000, down=500, agreement=0.9)
    split = way("split", "a", head=50, tail=5_000, up=110_000, down=500)
    assert without_dominated([rough, split]) == [rough, split]


def test_a_rung_must_be_faster_than_every_better_one() -> None:
    whole = way("device", "whole", head=9000)
    good = way("device", "res-128", head=4000, agreement=0.9)
    worse = way("device", "res-96", head=4100, agreement=0.8)
    assert choose_rungs([worse, whole, good], 0.0) == [whole, good]


def test_the_whole_leads_the_ladder_even_at_equal_agreement() -> None:
    whole = way("device", "whole", head=9000)
    equal = way("device", "res-128", head=4000, agreement=1.0)
    assert choose_rungs([equal, whole], 0.95) == [whole, equal]


def test_a_rung_below_the_least_agreement_is_left_out() -> None:
    whole = way("device", "whole", head=9000)
    rough = way("device", "res-96", head=2000, agreement=0.7)
    assert choose_rungs([whole, rough], 0.8) == [whole]


def test_the_sentence_names_the_choice_and_its_rival() -> None:
    whole = way("device", "whole", head=12_000)
    cloud = way("input", "input", tail=2000, up=10_000)
    text = explain(cloud, [whole, cloud], LINK, TEN_MS)
    assert "send the input as raw" in text
    assert "within the deadline of 10 ms" in text
    assert "device: whole" in text
    assert "no way" in explain(None, [], LINK, TEN_MS)
