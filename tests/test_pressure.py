"""How pressed a node is, what it tells of that, and which requests step back."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_input, make_plan
from typer.testing import CliRunner

from cloud.pressure import CALM, EVERY_NS, FULL, Pressure, shares
from edge.balance import NOT_INSURED, Insured
from edge.yielding import may_yield, yields
from hil.explain_live import explained
from hil.journals import journal
from hil.pair import Pair
from hil.pressed.cli import Result, told
from hil.pressed.play import Fared, Outcome, Press, play
from hil.pressed.rules import Pair as Played
from hil.pressed.rules import judge
from hil.sim.check_cli import group
from shared.errors import PeerError
from shared.events import Row
from shared.latency import Latency, WorkKey
from shared.plan import RAW, Profile, RangeTime, SegmentRange
from shared.queue import Job
from shared.settings import EdgePressure, EdgeSettings, NodeAddress
from shared.targets import Targets
from shared.wire import codec
from shared.wire.messages import Load, ProbeReply, Refusal, Reply

MS = 1_000_000
S = 1_000_000_000
WHOLE = SegmentRange(0, 0, 1)
PROMISED = Insured(0.9, 0, True)
CLASSES = frozenset({1, 2})


class Node:
    """The targets and the pressure of a node that runs a row in `ms` on each executor, or `b` rows in `ms` + `row_ms` * b."""

    def __init__(self, ms: float, executors: int = 1, row_ms: float | None = None, return_ms: float = 10_000.0) -> None:
        many = (1, ms) if row_ms is None else (64, ms + row_ms * 64)
        points = ((1, ms if row_ms is None else ms + row_ms), many)
        times = tuple(RangeTime(0, 0, 1, batch, at * 1e3, at * 1e3) for batch, at in dict(points).items())
        latency = Latency.of_profiles([("a", Profile("cloud", "d", "p", 1, 1.0, 0.0, times))])
        self.targets = Targets(executors, latency, {"a": 1 if row_ms is None else 64})
        self.pressure = Pressure(self.targets, return_ms)
        self.now = 0
        self._number = 0

    def come(self, per_s: float, seconds: float, priority: int = 1, lost: float = 0.0) -> list[tuple[int, ...]]:
        """An even stream of requests with 50 ms to go, of which a share is refused; what was told at the end of each."""
        told: list[tuple[int, ...]] = []
        for number in range(round(per_s * seconds)):
            self.now += round(S / per_s)
            self._number += 1
            row = Row(self._number, 1, (), RAW)
            job = Job(row.job, "a", WHOLE, row, self.now + 50 * MS, priority, False, WorkKey("a", WHOLE))
            self.targets.came(job, self.now)
            if math.floor((number + 1) * lost) > math.floor(number * lost):
                self.pressure.lost(1, self.now)
            told.append(self.pressure.told(self.now))
        return told

    def rest(self, seconds: float) -> None:
        """Nothing comes, but probes."""
        for _ in range(round(seconds * 10)):
            self.now += 100 * MS
            self.pressure.told(self.now)

    @property
    def level(self) -> float:
        return self.pressure.figures().level


@pytest.mark.parametrize(("executors", "per_s", "load"), [(1, 50, 0.5), (2, 100, 0.5), (4, 800, 2.0)])
def test_the_device_time_that_is_asked_for_is_counted_in_executors(executors: int, per_s: float, load: float) -> None:
    node = Node(10.0, executors)
    node.come(per_s, 5)
    asked = node.targets.asked(node.now)
    assert asked.load == pytest.approx(load, rel=0.05)
    assert asked.load * (1 - 1 / math.sqrt(per_s)) < asked.least < asked.load
    assert asked.rows_per_s == pytest.approx(per_s, rel=0.05)
    assert asked.classes == {1}


def test_of_launches_that_may_hold_many_rows_the_largest_counts_that_are_in_time_in_turn() -> None:
    """One executor and l(b) = 4 ms + b: in half of 50 ms 21 rows, 1.19 ms each."""
    node = Node(4.0, row_ms=1.0)
    node.come(500, 5)
    assert node.targets.asked(node.now).load == pytest.approx(500 * 25 / 21 / 1000, rel=0.05)


def test_while_less_is_asked_for_than_there_is_nobody_steps_back() -> None:
    node = Node(10.0)
    assert set(node.come(100 * (FULL - 0.02), 20)) == {()}
    assert node.pressure.figures().most == 0.0


def test_few_requests_that_came_together_by_chance_are_no_pressure() -> None:
    node = Node(100.0)
    node.come(5, 4)
    node.come(20, 0.4)
    assert node.targets.asked(node.now).load > FULL
    assert node.level == 0.0


def test_while_too_much_is_asked_for_the_least_important_class_steps_back_first() -> None:
    node = Node(10.0)
    node.come(10, 1, priority=2)
    told = node.come(150, 10, priority=1)
    first = next(shares for shares in told if shares)
    assert first[1] == 0 < first[2]
    assert told[-1] == (1000, 1000, 1000), "nobody stepped back: all are asked to in the end"
    levels = [sum(shares) for shares in told]
    assert levels == sorted(levels)


def test_the_more_is_asked_for_the_faster_it_rises() -> None:
    risen = []
    for load in (1.2, 1.6, 3.2):
        node = Node(10.0)
        node.come(100 * load, 1.0)
        risen.append(node.level)
    assert 0.0 < risen[0] < risen[1] < risen[2]


def test_between_calm_and_full_it_stays_and_below_it_falls_as_slowly_as_is_set() -> None:
    node = Node(10.0, return_ms=5_000.0)
    node.come(200, 4)
    node.come(100 * (CALM + FULL) / 2, 4)
    stays = node.level
    node.come(100 * (CALM + FULL) / 2, 4)
    assert node.level == stays > 0.0
    node.come(40, 1)
    before = node.level
    node.come(40, 2)
    assert before - node.level == pytest.approx(2 / 5, abs=0.05)


def test_nothing_that_comes_any_more_is_no_pressure_any_more() -> None:
    node = Node(10.0)
    node.come(300, 4)
    assert node.level > 0.5
    node.rest(12)
    assert node.pressure.told(node.now) == ()


def test_what_is_refused_on_a_busy_node_is_pressure_and_on_an_idle_one_is_not() -> None:
    """Where many models share few devices, rows are late long before the load is 1."""
    levels = []
    for per_s in (70, 30):
        node = Node(10.0)
        node.come(per_s, 4)
        node.come(per_s, 4, lost=0.1)
        levels.append(node.level)
    assert levels[0] > 0.1
    assert levels[1] == 0.0
    few = Node(10.0)
    few.come(70, 8, lost=0.005)
    assert few.level == 0.0


def test_a_node_that_is_set_so_never_asks() -> None:
    node = Node(10.0, return_ms=0.0)
    assert set(node.come(400, 5, lost=0.5)) == {()}


def test_a_level_is_found_anew_only_now_and_then() -> None:
    node = Node(10.0)
    told = node.come(1000, 1)
    changes = sum(a != b for a, b in pairwise(told))
    assert 0 < changes <= S / EVERY_NS


@given(st.floats(0, 16), st.frozensets(st.integers(0, 15)))
def test_shares_rise_from_the_least_important_class_to_the_most(level: float, classes: frozenset[int]) -> None:
    told = shares(level, classes)
    assert list(told) == sorted(told)
    assert all(0 <= share <= 1000 for share in told)
    assert (not told) == (round(1000 * min(1.0, level)) == 0 or not classes)
    if told:
        assert sum(told[c] for c in classes) == pytest.approx(1000 * min(level, len(classes)), abs=len(classes))


def test_a_class_that_nobody_asks_for_is_like_the_next_below() -> None:
    assert shares(0.4, frozenset({0, 2})) == (0, 400, 400)
    assert shares(1.4, frozenset({0, 2})) == (400, 1000, 1000)
    assert shares(0.0, frozenset({1})) == ()
    assert shares(3.0, frozenset()) == ()


# --- what an edge does about it ------------------------------------------------------------------------------------------


@given(
    st.integers(0, 1000),
    st.integers(1, 1 << 62),
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.just(n))),
)
def test_of_every_stream_the_share_that_is_asked_for_steps_back(share: int, first: int, step: tuple[int, int]) -> None:
    """Whichever numbers a stream's requests have, evenly apart."""
    back = sum(yields((share,), 1, first + step[0] * number) for number in range(400))
    assert back / 400 == pytest.approx(share / 1000, abs=0.03)
    assert (back == 0) if share == 0 else True
    assert (back == 400) if share == 1000 else True


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 1 << 40))
def test_who_steps_back_for_less_does_so_for_more(one: int, other: int, number: int) -> None:
    less, more = sorted((one, other))
    assert yields((more,), 0, number) or not yields((less,), 0, number)


def test_a_class_beyond_those_that_are_told_is_like_the_last() -> None:
    assert yields((0, 1000), 7, 5)
    assert not yields((0, 1000), 0, 5)
    assert not yields((), 2, 5)


def test_only_what_is_promised_steps_back_and_only_classes_and_rungs_that_may() -> None:
    settings = EdgePressure(from_class=1, least_agreement=0.8)
    assert may_yield(settings, 1, PROMISED)
    assert may_yield(settings, 2, PROMISED)
    assert not may_yield(settings, 0, PROMISED)
    assert not may_yield(settings, 1, Insured(0.9, 0, False))
    assert not may_yield(settings, 1, Insured(0.79, 0, True))
    assert not may_yield(settings, 1, NOT_INSURED)


def pair_of(**changes: object) -> Pair:
    contract, plan = make_plan(edge_ms=(6.0, 1.5))
    nodes = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)
    settings = msgspec.structs.replace(EdgeSettings(nodes=nodes), **changes)
    pair = Pair({contract: plan}, settings, journal=10_000)
    pair.run(50)
    return pair


def asked(pair: Pair, count: int = 20, priority: int = 1) -> list[str]:
    """Where so many answers came from, while the node is pressed."""
    sources: list[str] = []
    for _ in range(count):
        pair.broker.nodes.by_name["a"].pressure = (0, 500, 1000)
        sequence = pair.ask(make_input(), priority=priority)
        pair.run(20)
        sources.append(pair.answer(sequence).source)
    return sources


@pytest.mark.parametrize(("priority", "edge"), [(0, 0), (1, 10), (2, 20)])
def test_a_pressed_node_is_asked_less_by_what_is_less_important(priority: int, edge: int) -> None:
    pair = pair_of()
    assert abs(asked(pair, priority=priority).count("edge") - edge) <= 1
    assert abs(pair.broker.counters["stepped-back"] - edge) <= 1


def test_what_must_not_degrade_asks_a_pressed_node_as_ever() -> None:
    pair = pair_of(pressure=EdgePressure(least_agreement=0.95))
    assert set(asked(pair, priority=2)) == {"cloud"}


def test_a_route_that_is_fixed_is_taken_whatever_a_node_says() -> None:
    pair = pair_of(route="0/raw")
    assert set(asked(pair, priority=2)) == {"cloud"}


def test_what_the_device_cannot_promise_asks_a_pressed_node_as_ever() -> None:
    contract, plan = make_plan(edge_ms=(60.0, 40.0))
    nodes = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)
    pair = Pair({contract: plan}, EdgeSettings(nodes=nodes))
    pair.run(50)
    assert set(asked(pair, priority=2)) == {"cloud"}


def test_another_node_that_is_not_pressed_is_asked_instead() -> None:
    contract, plan = make_plan(edge_ms=(6.0, 1.5))
    nodes = tuple(NodeAddress(name=n, endpoint="tcp://127.0.0.1:1") for n in ("a", "b"))
    pair = Pair({contract: plan}, EdgeSettings(nodes=nodes))
    pair.run(50)
    pair.broker.nodes.by_name["a"].pressure = (1000,)
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).node == "b"
    assert pair.broker.counters["stepped-back"] == 0


def test_a_node_that_was_started_anew_is_not_pressed() -> None:
    pair = pair_of()
    node = pair.broker.nodes.by_name["a"]
    pair.kill("a")
    node.pressure = (1000,)
    pair.run(100)
    pair.start("a")
    pair.run(5)
    assert node.incarnation > 51
    assert node.pressure == ()


def test_an_edge_that_asks_too_much_is_told_by_the_node_steps_back_and_explains_it() -> None:
    contract, plan = make_plan(edge_ms=(30.0, 1.0), cloud_ms=3.0, batch_slope=1.0)
    pair = Pair(
        {contract: plan}, EdgeSettings(nodes=(NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)), journal=10_000
    )
    pair.run(50)
    for _ in range(1000):
        pair.ask(make_input(), 20.0, priority=2)
        pair.run(3)
    assert pair.broker.nodes.by_name["a"].pressure[-1] > 100
    assert pair.broker.counters["stepped-back"] > 20
    assert pair.edge.recorder is not None
    found = explained(journal(pair.edge.recorder), 100)
    assert found.difference is None
    choices = [choice for request in found.requests for choice in request.choices]
    back = [
        c
        for c in choices
        if [way.why for way in c.ways] == ["its node is pressed: the device's promised answer will do"]
    ]
    assert 0 < len(back) < len(choices)
    assert {choice.verdict for choice in back} == {"no way through the cloud"}


# --- on the wire ----------------------------------------------------------------------------------------------------------

LOAD = Load(5, 8)
MESSAGES = (
    Reply(1, 2, 3, "c", 0, "raw", 1, (), {}, 4, LOAD),
    Refusal(1, 2, 3, "expired", "", 4, LOAD),
    ProbeReply(1, 2, 3, 4, LOAD),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_pressure_travels_beside_the_load_and_not_at_all_where_there_is_none(message: Reply) -> None:
    (calm,) = codec.encode(message)
    assert b"pressure" not in calm
    assert codec.decode_node([calm])[0] == message
    pressed = msgspec.structs.replace(message, pressure=(0, 400, 1000))
    (header,) = codec.encode(pressed)
    assert codec.decode_node([header])[0] == pressed


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("wrong", [(1001,), (0, -1), (0,) * 17])
def test_a_pressure_that_is_none_is_refused(message: Reply, wrong: tuple[int, ...]) -> None:
    with pytest.raises(PeerError, match="pressure") as refused:
        codec.decode_node(codec.encode(msgspec.structs.replace(message, pressure=wrong)))
    assert refused.value.reason == "range"


# --- what it comes to -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played() -> Played:
    press = Press(load=2.0, edges=20, seconds=7.0)
    return Played(play(msgspec.structs.replace(press, return_ms=0.0)), play(press))


def test_beyond_what_a_node_can_more_is_in_time_and_less_is_refused(played: Played) -> None:
    assert list(judge(played)) == []
    needs = played.told.kinds["needs"]
    assert needs.on_time > 0.99 * needs.requests, "what only the node can answer finds room"
    silent = played.silent.kinds["needs"]
    assert silent.on_time < 0.9 * silent.requests
    assert played.told.turned_down < 0.1 * played.silent.turned_down
    assert played.told.stepped_back > 0 == played.silent.stepped_back


def test_what_a_node_runs_that_is_asked_too_much_comes_back_in_time(played: Played) -> None:
    """It is told of deadlines less what the way takes at least: without that it runs each request until nothing of the way
    back is left, and hardly any is in time."""
    silent = played.silent.kinds
    of_class_1 = [silent["needs"], silent["able"]]
    assert sum(kind.cloud for kind in of_class_1) > 0.6 * sum(kind.requests for kind in of_class_1)


def test_at_low_load_nothing_changes() -> None:
    press = Press(load=0.5, edges=20, seconds=7.0)
    pair = Played(play(msgspec.structs.replace(press, return_ms=0.0)), play(press))
    assert list(judge(pair)) == []
    assert pair.told.kinds == pair.silent.kinds
    assert pair.told.most == 0.0


def test_what_is_over_a_bound_is_said(played: Played) -> None:
    swapped = Played(played.told, played.silent)
    told = " ".join(judge(swapped))
    assert "in time" in told
    assert "refused" in told
    low = Press(load=0.5)
    calm = Outcome(low, {"needs": Fared(10, 10, 10, 1.0)}, {}, 0, 0.0)
    stepped = msgspec.structs.replace(calm, stepped_back=3)
    assert list(judge(Played(calm, calm))) == []
    assert "3 requests stepped back" in " ".join(judge(Played(calm, stepped)))


def test_the_command_tells_both_and_fails_where_pressure_does_not_pay() -> None:
    runner = CliRunner()
    asked = ["pressure", "--edges", "10", "--seconds", "6", "--json"]
    fine = runner.invoke(group(), [*asked, "--load", "0.5", "--load", "2"])
    assert fine.exit_code == 0
    result = msgspec.json.decode(fine.stdout, type=Result)
    assert [pair.told.press.load for pair in result.pairs] == [0.5, 2.0]
    assert (result.pairs[1].silent.most, result.faults) == (0.0, ())
    assert "needs the node (class 1): in time" in told(result)
    slow = runner.invoke(group(), [*asked, "--load", "2", "--tail-ms", "1000", "--deadline-ms", "20"])
    assert slow.exit_code == 1
    assert "expected more" in slow.stdout
    short = runner.invoke(group(), ["pressure", "--seconds", "4"])
    assert short.exit_code == 2
    assert "--seconds 4: expected more than the 4 s" in short.output
    none = runner.invoke(group(), ["pressure", "--load", "0.05", "--seconds", "4.1", "--tail-ms", "1000"])
    assert none.exit_code == 2
    assert "no request counts" in none.output
