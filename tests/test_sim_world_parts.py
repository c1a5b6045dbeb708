"""The parts of the simulator's world: clocks, distributions and traces, plans, stamps, damaged messages."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from hil.sim.clock import HostClock
from hil.sim.echoes import Past
from hil.sim.net_path import damaged
from hil.sim.plans import make_model
from hil.sim.stamp import Stamps, request_inputs
from hil.sim.times import DISTRIBUTIONS, make_trace, one_way, read_trace
from shared.errors import PeerError, UserError
from shared.events import Row, Run
from shared.plan import RAW, SegmentRange
from shared.plan_rules import plan_faults
from shared.request import EXACT, Answer, Array, Buffer, Fidelity, Request
from shared.wire.codec import decode_edge, encode
from shared.wire.messages import Cancel, Infer, Probe, Tensor

MS = 1_000_000


@pytest.mark.parametrize("rate_ppb", [-100_000, 0, 77_777, 100_000])
def test_a_clock_says_when_it_will_first_read_a_time(rate_ppb: int) -> None:
    clock = HostClock(123_456_789, 1_000, rate_ppb)
    for local in (123_456_790, 123_999_999, 9_999_999_999):
        at = clock.true(local)

        assert clock.local(at) >= local > clock.local(at - 1)


def test_a_clock_stands_still_while_its_host_is_suspended() -> None:
    clock = HostClock(0, 0, 0)
    clock.suspend(5 * MS)

    assert clock.local(80 * MS) == 5 * MS
    assert clock.resume(105 * MS) == 100 * MS
    assert clock.local(106 * MS) == 6 * MS


def test_a_clock_whose_rate_changes_does_not_jump() -> None:
    clock = HostClock(0, 0, 100_000)
    before = clock.local(1_000 * MS)
    clock.drift(-100_000, 1_000 * MS)

    assert clock.local(1_000 * MS) == before == 1_000 * MS + 100_000
    assert clock.local(2_000 * MS) == 2_000 * MS


@pytest.mark.parametrize("name", list(DISTRIBUTIONS))
def test_half_of_the_draws_are_below_the_median(name: str) -> None:
    draw = one_way(random.Random(1), name, 1 * MS)
    drawn = [next(draw) for _ in range(4_000)]

    assert min(drawn) > 0
    assert 0.4 < sum(d < 1 * MS for d in drawn) / len(drawn) < 0.6


def test_a_trace_is_read_from_the_named_column() -> None:
    lines = ["n,rtt_ms", "1,2.5", "2,10"]

    assert read_trace(lines, "rtt_ms") == (1_250_000, 5_000_000)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["n,rtt", "1,2"], "no column 'rtt_ms'"),
        (["rtt_ms", "fast"], "line 2: expected milliseconds, got 'fast'"),
        (["rtt_ms", "-1"], "line 2: expected 0 to 3600000 ms"),
        (["rtt_ms", "nan"], "line 2: expected 0 to 3600000 ms"),
        (["rtt_ms"], "no line but its head"),
        ([], "no column 'rtt_ms'"),
    ],
)
def test_a_trace_that_is_none_is_refused_in_one_line(lines: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_trace(lines, "rtt_ms")


def test_a_made_up_trace_has_bad_times_that_come_together() -> None:
    trace = make_trace(random.Random(1), 4_000, 4.0)
    bad = [t > 6 * MS for t in trace]
    follow = sum(a and b for a, b in pairwise(bad)) / sum(bad)

    assert follow > 2 * sum(bad) / len(bad)


@pytest.mark.parametrize("seed", range(30))
def test_every_plan_keeps_the_rules_and_every_version_has_its_own_contract(seed: int) -> None:
    model = make_model(random.Random(seed), "m", 3)

    assert [fault for plan in model.plans for fault in plan_faults(plan)] == []
    assert len(set(model.contracts)) == 3
    assert model.version(9) == model.version(2)


@pytest.mark.parametrize("seed", range(30))
def test_an_answer_of_another_request_version_program_or_lossy_coding_is_another(seed: int) -> None:
    model = make_model(random.Random(seed), "m", 2)
    stamps = Stamps(dict(zip(model.contracts, model.plans, strict=True)))
    plan = model.plans[0]
    answers: list[bytes] = []
    for contract in model.contracts:
        for value in (1, 2):
            inputs = request_inputs(plan.inputs, 1, value)
            outputs = [stamps.outputs(contract, inputs, 1, i, None, "raw") for i in range(len(plan.programs))]
            for cut in range(1, len(plan.cuts) - 1):
                lossy = [c.name for c in plan.cuts[cut].codings if c.lossy]
                outputs += [stamps.outputs(contract, inputs, 1, 0, cut, name) for name in lossy]
            answers += [b"".join(array.tobytes() for array in named.values()) for named in outputs]

    assert len(set(answers)) == len(answers)


def test_what_an_answer_must_hold_follows_from_what_it_says_of_itself() -> None:
    model = next(m for m in (make_model(random.Random(s), "m", 1) for s in range(99)) if len(m.plans[0].cuts) == 3)
    plan, contract = model.plans[0], model.contracts[0]
    stamps = Stamps({contract: plan})
    request = Request("c", 1, contract, request_inputs(plan.inputs, 1, 7), 1, 0, 1)
    local = Answer({}, "edge", None, "whole", None, EXACT, contract)
    cloud = local.replace(source="cloud", node="n", cut=1)
    coded = plan.cuts[1].codings[-1]
    lossy = cloud.replace(fidelity=Fidelity("lossy", coded.name, 0.97) if coded.lossy else EXACT)

    def same(answer: Answer, cut: int | None, coding: str) -> bool:
        got, right = stamps.expected(request, answer), stamps.outputs(contract, request.inputs, 1, 0, cut, coding)
        return all(np.array_equal(got[name], array) for name, array in right.items())

    assert same(local, None, "raw")
    assert same(cloud, 1, "raw")
    assert same(lossy, 1, coded.name)
    assert same(cloud, None, "raw"), "nothing lossy was in between"
    assert not coded.lossy or not same(lossy, None, "raw")


@pytest.mark.parametrize("seed", range(30))
def test_a_range_of_what_a_range_gives_is_the_whole(seed: int) -> None:
    model = make_model(random.Random(seed), "m", 1)
    plan, contract = model.plans[0], model.contracts[0]
    stamps = Stamps({contract: plan})
    inputs = request_inputs(plan.inputs, 1, 7)
    last = len(plan.cuts) - 1

    def run(part: SegmentRange, given: tuple[Array | Buffer, ...]) -> tuple[Array | Buffer, ...]:
        return stamps.run(Run(1, 0, contract, part, (Row(1, 1, given, RAW),), 0, 0))[0].outputs

    whole = run(SegmentRange(0, 0, last), inputs)
    for cut in range(1, last):
        pieces = run(SegmentRange(0, cut, last), run(SegmentRange(0, 0, cut), inputs))
        assert [bytes(np.asarray(a)) for a in pieces] == [bytes(np.asarray(a)) for a in whole]


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_message_is_refused_or_leaves_a_tensor_of_a_wrong_size(seed: int) -> None:
    rng = random.Random(seed)
    tensor = np.arange(8, dtype=np.float32)
    infer = Infer(1, 2, 1, "c" * 64, 0, "raw", 1, 1, 5 * MS, 99, (Tensor("float32", (8,)),))
    for message, tensors in ((infer, (tensor,)), (Cancel(1, 2, 3), ()), (Probe(1, 2, 3, 4), ())):
        frames = [bytes(frame) for frame in encode(message, tensors)]
        broken = damaged(frames, rng)
        assert [bytes(frame) for frame in broken] != frames
        try:
            decoded, left = decode_edge(broken)
        except PeerError:
            continue
        assert decoded == message
        assert [len(frame) for frame in left] != [32]


def test_what_an_earlier_incarnation_carried_comes_again_to_the_next() -> None:
    past = Past()
    for number in range(40):
        past.carry([b"old", bytes([number])])
    past.begin()
    past.carry([b"new"])
    echoes = list(past.echoes(random.Random(1)))
    numbers = {frames[1][0] for _, frames in echoes if frames[0] == b"old"}

    assert numbers == {*range(16), *range(24, 40)}
    assert all(later > 0 for later, _ in echoes)
